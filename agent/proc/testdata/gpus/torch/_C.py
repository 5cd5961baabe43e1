_nccl_all_reduce = True
