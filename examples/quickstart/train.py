import os, time
import regroup

rank, step = os.environ["RANK"], 0
checkpoint = f"checkpoint-{rank}"
if os.path.exists(checkpoint):
    step = int(open(checkpoint).read())
print(f"rank {rank} is process {os.getpid()}, after step {step}", flush=True)
while step < 400:
    time.sleep(0.05)  # instead of a step of training
    step += 1
    with open(checkpoint + ".new", "w") as f:
        f.write(str(step))
    os.replace(checkpoint + ".new", checkpoint)
    regroup.report(step=step)
