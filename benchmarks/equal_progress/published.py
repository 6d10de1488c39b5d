"""The published experiment: "rate 0.1 with batch 128 equals rate 0.2 with batch 256 on 2 GPUs; rate 0.1 with batch 256
does not". Here with 32 per replica, because the digits are too few for steps of 256 to show a curve."""

PUBLISHED = "plain SGD, constant rate"
PER_REPLICA_BATCH = 32
RATE = 0.1
EPOCHS = 10
