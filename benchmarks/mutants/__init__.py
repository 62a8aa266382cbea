"""Small faults in the code of the measures: what share do their tests notice?"""
