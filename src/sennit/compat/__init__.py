"""Names of other systems for Sennit's own things, one thin module per system.

`sennit.compat.lionpride`, `sennit.compat.openviking` and `sennit.compat.smarthopper` let a program
written for one of these run with its import line changed. They add names, positions and shapes and
keep the behaviour; new code uses `sennit` itself. DSPy sessions are in `sennit.learning.dspy`.
"""
