"""A process group of torch.distributed on the engine. regroup.torch.distributed makes it known to torch."""
