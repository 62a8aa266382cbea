"""Small faults in the code of the measures and estimators: what share do their tests notice?"""
