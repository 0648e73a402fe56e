"""Losses and metrics inside other people's training loops. Every file is thin, and needs its package alone.

A loss of lossmith is a callable of outputs and targets, a module when it has a state: where a package takes one of
torch's losses it takes ours, and needs nothing from here. What is here is the rest.
"""
