#!/bin/bash
# A real Slurm of two nodes on this machine: n1 and n2 are network and host-name namespaces on a bridge of their own.
#   slurm_cluster.sh up|down FOLDER     as root; Debian's slurmctld, slurmd, munge, iproute2
set -u
folder=$2
nodes=(n1 n2)
export SLURM_CONF=$folder/slurm.conf

space() { # NAME ADDRESS: a namespace that is a host of this name
  ip netns add "tfs-$1" && ip link add "tfs$1" type veth peer name eth0 netns "tfs-$1" && ip link set "tfs$1" master tfsbr up
  ip -n "tfs-$1" addr add "$2/24" dev eth0 && ip -n "tfs-$1" link set eth0 up && ip -n "tfs-$1" link set lo up
  mkdir -p "/etc/netns/tfs-$1" && printf '127.0.0.1 localhost\n10.77.0.253 ctl\n10.77.0.1 n1\n10.77.0.2 n2\n' > "/etc/netns/tfs-$1/hosts"
}

within() { # NAME COMMAND...
  local name=$1
  shift
  ip netns exec "tfs-$name" unshare --uts bash -c "hostname $name; exec \"\$@\"" bash "$@"
}

up() {
  mkdir -p "$folder"/{state,log,spool/n1,spool/n2} /run/munge /var/log/munge /etc/munge
  chmod 755 "$folder" /run/munge && chown munge:munge /run/munge /var/log/munge
  munge -n > /dev/null 2>&1 || { runuser -u munge -- munged && touch "$folder/own-munged"; }
  ip link add tfsbr type bridge && ip addr add 10.77.0.254/24 dev tfsbr && ip link set tfsbr up || return 1
  # The controller is told apart from the host by its name, so it has a namespace too.
  space ctl 10.77.0.253 && space n1 10.77.0.1 && space n2 10.77.0.2 || return 1
  cat > "$SLURM_CONF" <<CONF
ClusterName=tfs
SlurmctldHost=ctl(10.77.0.253)
SlurmUser=root
AuthType=auth/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=30
SchedulerParameters=bf_interval=5,sched_interval=5
StateSaveLocation=$folder/state
SlurmctldPidFile=$folder/ctl.pid
SlurmdPidFile=$folder/%n.pid
SlurmdSpoolDir=$folder/spool/%n
SlurmctldLogFile=$folder/log/ctl.log
SlurmdLogFile=$folder/log/%n.log
JobRequeue=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
NodeName=n[1-2] NodeAddr=10.77.0.[1-2] CPUs=2 RealMemory=4000
PartitionName=low Nodes=n[1-2] Default=YES MaxTime=60 PriorityTier=1 GraceTime=60 PreemptMode=REQUEUE
PartitionName=high Nodes=n[1-2] MaxTime=60 PriorityTier=10 PreemptMode=OFF
CONF
  printf 'CgroupPlugin=cgroup/v1\nCgroupAutomount=no\nConstrainCores=no\n' > "$folder/cgroup.conf"
  within ctl slurmctld -f "$SLURM_CONF"
  for node in "${nodes[@]}"; do within "$node" slurmd -f "$SLURM_CONF" -N "$node"; done
  for _ in $(seq 60); do [ "$(sinfo -h -o %D -t idle -p low)" = 2 ] && return 0; sleep 1; done
  sinfo -N -l
  return 1
}

down() {
  for name in "${nodes[@]}" ctl; do [ -f "$folder/$name.pid" ] && kill "$(cat "$folder/$name.pid")" 2> /dev/null; done
  sleep 1
  for name in "${nodes[@]}" ctl; do
    ip netns pids "tfs-$name" 2> /dev/null | xargs -r kill -9 2> /dev/null
    ip netns del "tfs-$name" 2> /dev/null
    rm -rf "/etc/netns/tfs-$name"
  done
  ip link del tfsbr 2> /dev/null
  [ -f "$folder/own-munged" ] && kill "$(cat /run/munge/munged.pid)" 2> /dev/null
  return 0
}

"$1"
