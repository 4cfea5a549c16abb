"""Measures of sound, checks of measures, faults and states of sensors; no stage, no clock, no file.

measures.py             what a second of sound is like, for every sensor
checks.py               from measures to findings: one small function for each cause
cross_sensor.py         what sensors hear in common
cross_sensor_checks.py  from that to findings
baseline.py             what is usual for an array
faults.py               findings become faults that open and close
state_machine.py        faults become a state
sequential_tests.py     p-values become alarms at a chosen rate
"""
