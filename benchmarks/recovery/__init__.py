"""Workers that are killed again and again, beside a run that is not."""
