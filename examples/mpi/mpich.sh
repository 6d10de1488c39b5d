#!/bin/bash
# Trains on the hosts of a list with MPICH (Hydra), one worker for each entry:
#
#   bash examples/mpi/mpich.sh node1,node2 train.py --epochs 90
#
# SIGTERM goes on to the workers, which save and end with status 143 where the script has `Recovery`.
hosts=$1
shift
export TFSCALE_HOSTS=$hosts
export TFSCALE_SECRET=${TFSCALE_SECRET:-$(head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n')}
commas=${hosts//[^,]/}
# Hydra kills all when one process has ended with an error, -disable-auto-cleanup or not. So the shell around a worker that
# failed or was killed stays for 15 s, in which the others say whom they miss.
worker='trap : TERM; "$@"; status=$?; case $status in 0 | 143) ;; *) sleep 15 ;; esac; exit $status'
exec "${MPIEXEC:-mpiexec.hydra}" -n $((${#commas} + 1)) -ppn 1 -hosts "$hosts" bash -c "$worker" bash ${PYTHON:-python} "$@"
