#!/bin/bash
# Trains on the hosts of a list with Open MPI, one worker for each entry:
#
#   bash examples/mpi/open_mpi.sh node1,node2 train.py --epochs 90
#
# Open MPI kills its processes 2 s after it was told to end. With odls_base_sigkill_timeout=N they hear SIGTERM after N
# seconds and are killed after as many more: N is what a save takes, and the whole takes twice as long.
hosts=$1
shift
export TFSCALE_HOSTS=$hosts
export TFSCALE_SECRET=${TFSCALE_SECRET:-$(head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n')}
commas=${hosts//[^,]/}
exec "${MPIRUN:-mpirun}" -n $((${#commas} + 1)) --host "$hosts" --mca odls_base_sigkill_timeout "${SAVE_S:-15}" \
  -x TFSCALE_HOSTS -x TFSCALE_SECRET ${PYTHON:-python} "$@"
