"""Sensors: what packs declare, which service runs it, and what it reports.

catalogue     sensors of packs: installed, enabled, disabled, restarted
definitions   their files
assignments   take, ready, fail, give up, lose: who runs a sensor now, with a lease and a fence
reports       what a sensor reports, recorded together with its cursor if the fence is the same
services      the lives of sensor services
logs          what sensors write to their standard error
condition     what is wrong with them now
"""
