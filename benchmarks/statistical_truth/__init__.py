"""Simulated judges whose truth is known: do tests keep their level, and do intervals cover?"""
