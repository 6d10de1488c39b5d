"""What the command `tfscale` says: its commands, their exit statuses, tables and progress. No TensorFlow."""
