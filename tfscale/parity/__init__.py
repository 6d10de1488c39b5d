"""Does a script give the same result on N replicas as on one?"""
