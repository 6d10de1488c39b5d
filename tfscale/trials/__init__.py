"""What does a user's own script come to, when it is run to be measured?"""
