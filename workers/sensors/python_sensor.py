"""Run a sensor in an interpreter of its own: `python_sensor.py MODULE:CLASS FOLDER`.

FOLDER, the folder of the module and the pack's `lib` are the last places where modules are looked
for, but for Muster's own code. For any Python since 3.8, with its standard library only: the pack's
interpreter runs it.
"""

import sys

sys.path.pop(0)  # our own folder, which has modules with the names of others

import functools
import importlib
import os

OURS = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
"""The folder where `muster_client` is."""


def main():  # type: ignore[no-untyped-def]
    module_name, _, name = sys.argv[1].partition(":")
    folders = module_name.split(".")[:-1]
    beside, library = os.path.join("", *folders), os.path.join("", *folders[:1], "lib")
    # as in StackStorm: what stands beside the sensor, and in the pack's `lib`
    more = [os.path.join(sys.argv[2], folder) for folder in (beside, library)]
    sys.path += [sys.argv[2], *more, OURS]
    from muster_client import sensors, st2_sensors

    # what a sensor prints is for its log: lines of the protocol have a descriptor of their own
    channel = sensors.Channel.take_standard_streams()
    st2_sensors.provide_base_classes()
    make = getattr(importlib.import_module(module_name), name)
    if not (isinstance(make, type) and issubclass(make, sensors.Sensor)):
        make = functools.partial(st2_sensors.Shim, make)
    sensors.run(make, channel)


if __name__ == "__main__":
    main()
