"""What happens between the steps?"""
