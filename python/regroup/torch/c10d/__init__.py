"""A process group for torch.distributed. regroup.torch.distributed registers it."""
