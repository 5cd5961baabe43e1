#!/usr/bin/env bash
# Starts a Slurm cluster of three nodes on this machine, for this test alone, submits deploy/slurm/regroup.sbatch with a
# script of torch.distributed, kills everything that runs on one node, and checks that the others go on as two and that
# the job ends right. Then a second job gets SIGTERM, as before its time limit, and ends. Needs root.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
. deploy/until.sh
deploy/setup.sh slurm

dir=$(mktemp -d /tmp/regroup-slurm-XXXXXX)
export SLURM_CONF=$dir/slurm.conf
host=$(hostname)

down() {
  local rc=$?
  [ $rc = 0 ] || tail -n 40 "$dir"/*.out "$dir"/*.log >&2 || true
  scancel --signal=KILL --full "$(squeue -h -o %i | tr '\n' ' ')" 2>/dev/null || true
  for f in "$dir"/*.pid; do kill "$(cat "$f")" 2>/dev/null || true; done
  pkill -KILL -f "$dir" || true
  rm -rf "$dir"
  exit $rc
}
trap down EXIT

chmod 755 "$dir"
head -c 128 /dev/urandom >"$dir/munge.key"
chmod 400 "$dir/munge.key"
munged --key-file="$dir/munge.key" --socket="$dir/munge.socket" --pid-file="$dir/munged.pid" --log-file="$dir/munged.log" \
  --seed-file="$dir/munge.seed" --force
cat >"$SLURM_CONF" <<CONF
ClusterName=test
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=17817
AuthType=auth/munge
AuthInfo=socket=$dir/munge.socket
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool-%n
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/slurmd-%n.pid
SlurmctldLogFile=$dir/slurmctld.log
SlurmdLogFile=$dir/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
NodeName=n[1-3] NodeHostname=$host NodeAddr=127.0.0.1 Port=[17001-17003] CPUs=4 RealMemory=1000 State=UNKNOWN
PartitionName=main Nodes=n[1-3] Default=YES MaxTime=INFINITE State=UP
CONF
mkdir "$dir/state"
slurmctld
for n in n1 n2 n3; do slurmd -N $n; done
three_idle() { [ "$(sinfo -h -N -t idle -o %N 2>/dev/null | wc -l)" = 3 ]; }
until_true 60 "three idle nodes" three_idle
echo "slurm: three nodes are idle"

PYTHON_EXEC=$(deploy/torch.sh)
export PATH=$root/bin:$PATH PYTHON_EXEC OMP_NUM_THREADS=1 GLOO_SOCKET_IFNAME=lo
script=$root/python/tests/scripts/stock.py
submit() { # submit NAME: prints the job's id
  END=$dir/$1.end sbatch --parsable --chdir="$dir" --output="$dir/$1.out" --nodes=3 --cpus-per-task=2 deploy/slurm/regroup.sbatch "$script"
}
state() { scontrol show job "$1" | sed -n 's/.*JobState=\([A-Z]*\).*/\1/p'; }
ended() { case $(state "$1") in COMPLETED | FAILED | CANCELLED | TIMEOUT | NODE_FAIL) true ;; *) false ;; esac; }
says() { [ -e "$dir/$1.out" ] && [ "$(grep -c "$2" "$dir/$1.out")" -ge "$3" ]; }
of_node() { # the processes that a job has on a node
  for p in /proc/[0-9]*; do
    tr '\0' '\n' 2>/dev/null <"$p/environ" | grep -qx "SLURMD_NODENAME=$1" && basename "$p"
  done
  true
}

job=$(submit lost)
until_true 90 "a group of three" says lost "size=3 sum=3" 3
mapfile -t lost < <(of_node n3)
echo "slurm: a group of three trains; killing what runs on n3"
kill -KILL "${lost[@]}" 2>/dev/null || true
until_true 90 "a group of two" says lost "size=2 sum=2" 2
touch "$dir/lost.end"
until_true 90 "the end of the job" ended "$job"
[ "$(state "$job")" = COMPLETED ]
echo "slurm: the others went on as two, and the job has completed"

job=$(submit stopped)
until_true 90 "a group of three" says stopped "size=3 sum=3" 3
scancel --signal=TERM --batch "$job"
until_true 90 "the end of the job" ended "$job"
[ -z "$(of_node n1)$(of_node n2)$(of_node n3)" ]
echo "slurm: a job that gets SIGTERM ends, and leaves nothing"
