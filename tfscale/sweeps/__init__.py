"""Which of many settings is best? Each tried in a process of its own, side by side on the devices that are here."""
