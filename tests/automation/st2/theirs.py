"""A small pack of StackStorm, with one of each kind of file."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

FILES = {
    "pack.yaml": """
        ref: disk-watch
        name: Disk watch
        version: 1.2.0
        description: Looks after disks.
        author: Nobody
        email: nobody@example.org
        """,
    "config.schema.yaml": """
        limit:
          type: integer
          default: 90
        token:
          type: string
          secret: true
          required: true
        host:
          type: string
          required: true
        """,
    "actions/usage.yaml": """
        name: usage
        runner_type: python-script
        description: How full a disk is.
        entry_point: code/usage.py
        parameters:
          path: {type: string, required: true, position: 0}
          unit: {type: string, enum: [percent, bytes], default: percent}
          note: {type: string}
          fixed: {type: string, immutable: true, default: always}
          timeout: {type: integer, default: 30}
        """,
    "actions/code/usage.py": """
        from base import Measured


        class Usage(Measured):
            def run(self, path, unit, note, fixed):
                print("measuring", path)
                self.logger.info("limit %s", self.config["limit"])
                if path == "/broken":
                    return False, {"path": path}
                if path == "/kept":
                    return self.action_service.get_value("last")
                return True, {"path": path, "unit": unit, "note": note, "fixed": fixed,
                              "limit": self.config["limit"]}
        """,
    "actions/lib/base.py": """
        from st2common.runners.base_action import Action


        class Measured(Action):
            def __init__(self, config=None, action_service=None):
                super().__init__(config=config, action_service=action_service)
        """,
    "actions/say.yaml": """
        name: say
        runner_type: local-shell-cmd
        description: Says something, to somebody.
        parameters:
          text: {type: string, required: true}
          whom: {type: string, default: everybody}
          cmd:
            immutable: true
            default: 'printf "%s: %s in ${HOME}" {{ text }} "to {{whom}}"'
        """,
    "actions/any.yaml": """
        name: any
        runner_type: local-shell-cmd
        description: Runs a command.
        parameters:
          cmd: {type: string, required: true}
        """,
    "actions/clean.yaml": """
        name: clean
        runner_type: local-shell-script
        entry_point: clean.sh
        description: Removes old files.
        parameters:
          folder: {type: string, required: true, position: 1}
          days: {type: integer, required: true, position: 0}
          mode: {type: string, default: fast}
          force: {type: boolean, default: false}
        """,
    "actions/clean.sh": """
        #!/bin/sh
        echo "$@"
        """,
    "actions/report.yaml": """
        name: report
        runner_type: http-request
        description: Reports usage.
        parameters:
          url: {type: string, immutable: true, default: "https://example.org/disks/{{disk}}"}
          method: {type: string, immutable: true, default: POST}
          headers: {type: object, immutable: true, default: {accept: application/json}}
          disk: {type: string, required: true}
          body: {type: object, required: true}
          cookies: {type: object}
          label: {type: string}
        """,
    "actions/flow.yaml": """
        name: flow
        runner_type: orquesta
        entry_point: workflows/flow.yaml
        description: A workflow.
        """,
    "actions/copy.yaml": """
        name: copy
        runner_type: remote-shell-cmd
        description: Copies by SSH.
        """,
    "rules/full.yaml": """
        name: full
        pack: disk-watch
        description: Cleans a disk that is full.
        enabled: true
        trigger:
          type: disk-watch.measured
          parameters: {}
        criteria:
          trigger.percent: {type: gt, pattern: 90}
          "trigger.path#1": {type: startswith, pattern: /var}
          "trigger.path#2": {type: nequals, pattern: "/var/keep"}
        action:
          ref: disk-watch.clean
          parameters:
            folder: "{{ trigger.path }}"
            days: 7
        """,
    "rules/hourly.yaml": """
        name: hourly
        description: Says the time.
        enabled: false
        trigger:
          type: core.st2.IntervalTimer
          parameters: {unit: hours, delta: 1}
        criteria: {}
        action:
          ref: core.local
          parameters:
            cmd: 'echo "{{trigger.executed_at}}" >> ~/times'
        """,
    "rules/ended.yaml": """
        name: ended
        description: Notes failures.
        enabled: true
        trigger: {type: core.st2.generic.actiontrigger}
        criteria:
          trigger.action_name: {type: equals, pattern: disk-watch.clean}
          trigger.status: {type: equals, pattern: succeeded}
        action:
          ref: core.echo
          parameters: {message: "{{ trigger.execution_id }} of {{ trigger.action_name }}"}
        """,
    "rules/secret.yaml": """
        name: secret
        description: Reads the datastore.
        trigger: {type: disk-watch.measured}
        action:
          ref: disk-watch.usage
          parameters: {path: "{{ st2kv.system.path }}"}
        """,
    "rules/odd.yaml": """
        name: odd
        description: Compares with an operator that nobody knows.
        trigger: {type: disk-watch.measured}
        criteria:
          trigger.percent: {type: about, pattern: 90}
        action: {ref: core.noop}
        """,
    "rules/flows.yaml": """
        name: flows
        description: Calls an action that was left out.
        trigger: {type: disk-watch.measured}
        action: {ref: disk-watch.flow}
        """,
    "triggers/measured.yaml": """
        name: measured
        pack: disk-watch
        description: A disk was measured.
        payload_schema:
          type: object
          properties:
            path: {type: string, required: true}
            percent: {type: number}
        """,
    "sensors/disk_sensor.yaml": """
        class_name: DiskSensor
        entry_point: disk_sensor.py
        description: Measures disks.
        poll_interval: 20
        trigger_types:
          - name: grown
            description: A disk has grown.
            payload_schema: {type: object, properties: {path: {type: string}}}
        """,
    "sensors/disk_sensor.py": """
        from st2reactor.sensor.base import PollingSensor


        class DiskSensor(PollingSensor):
            def poll(self):
                if self.sensor_service.get_value("told") is None:
                    payload = {"path": f"/ beyond {self.config['limit']}"}
                    self.sensor_service.dispatch(trigger="disk-watch.grown", payload=payload)
                    self.sensor_service.set_value("told", "yes")
        """,
    "policies/one.yaml": """
        name: one_at_a_time
        description: One for each folder.
        enabled: true
        resource_ref: disk-watch.clean
        policy_type: action.concurrency.attr
        parameters: {action: cancel, threshold: 1, attributes: [folder]}
        """,
    "policies/again.yaml": """
        name: again
        resource_ref: disk-watch.clean
        policy_type: action.retry
        parameters: {retry_on: failure}
        """,
    "aliases/clean.yaml": """
        name: clean
        action_ref: disk-watch.clean
        formats: ["clean {{folder}}"]
        """,
}


SAMPLES = {
    "pack.yaml": """
        ref: samples
        version: 0.1.0
        """,
    "actions/measure.json": """
        {"name": "measure", "runner_type": "local-shell-cmd", "enabled": true,
         "parameters": {"cmd": {"immutable": true, "default": "df"}}}
        """,
    "actions/greet.yml": """
        ---
            name: "greet"
            runner_type: "python-script"
            entry_point: "greet.py"
            parameters:
                who:
                    type: "string"
                    required: true
                    position: 0
        """,
    "actions/greet.py": """
        from st2common.runners.base_action import Action


        class Greet(Action):
            def run(self, who):
                return who
        """,
    "actions/chain.yaml": """
        name: chain
        runner_type: action-chain
        entry_point: chains/all.yaml
        """,
    "rules/on_timer.json": """
        {
            "name": "on_timer",
            "enabled": true,
            "trigger": {
                "type": "core.st2.IntervalTimer",
                "parameters": {"unit": "seconds", "delta": 30}
            },
            "criteria": {},
            "action": {
                "ref": "core.local",
                "parameters": {"cmd": "echo \\"{{trigger.executed_at}}\\""}
            }
        }
        """,
    "rules/on_webhook.json": """
        {"name": "on_webhook", "trigger": {"type": "core.st2.webhook",
         "parameters": {"url": "sample"}}, "action": {"ref": "core.local",
         "parameters": {"cmd": "echo \\"{{trigger.body}}\\""}}}
        """,
    "rules/on_action.json": """
        {"name": "on_action", "trigger": {"type": "core.st2.generic.actiontrigger"},
         "criteria": {"trigger.action_name": {"type": "iequals", "pattern": "core.local"},
         "trigger.status": {"type": "iequals", "pattern": "succeeded"}},
         "action": {"ref": "core.noop"}}
        """,
    "rules/old_words.json": """
        {"name": "old_words", "trigger": {"name": "st2.webhook"}, "action": {"name": "local"}}
        """,
    "rules/file_watch.yaml": """
        ---
        name: file_watch
        pack: "samples"
        enabled: false
        trigger:
          parameters:
            file_path: /tmp/watched
          type: linux.file_watch.line
        criteria: {}
        action:
          parameters:
            cmd: echo "{{trigger}}"
          ref: core.local
        """,
}
"""A pack with each format that StackStorm reads, and rules of old and of other words."""


def only(folder: Path, **files: str) -> Path:
    """Write these files into this folder; returns the folder."""
    for name, text in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(dedent(text).lstrip())
        if file.suffix == ".sh":
            file.chmod(0o755)
    return folder


def write(folder: Path, **more: str) -> Path:
    """Write the pack into this folder, with more files or others; returns the folder."""
    return only(folder, **(FILES | more))
