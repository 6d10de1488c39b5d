"""How can gradients take fewer bytes on their way?"""
