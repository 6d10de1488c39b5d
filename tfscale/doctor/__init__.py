"""What is here, what is wrong, and what is to be done?"""
