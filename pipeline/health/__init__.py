"""Is a sensor well? Measures of sound, checks of measures, and what follows from them; no stage, no clock, no file.

measures.py         what a second of sound is like, for every sensor
checks.py           from measures to findings: one small function for each cause
together.py         what sensors hear in common
together_checks.py  from that to findings
usual.py            what is usual for an array
faults.py           findings become faults that open and close
condition.py        faults become a state
alarms.py           p-values become alarms at a chosen rate
"""
