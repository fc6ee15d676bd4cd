"""The lines on which the promise of automation rests, and how each is broken."""

from __future__ import annotations

from tests.chaos.mutations import Mutant, Stage


def _stage(name: str) -> Stage:
    return (f"tests/automation/{name}.py",)


MATCHING, ENFORCING = _stage("test_matching"), _stage("test_enforcing")
RECORDING, RULES = _stage("test_recording"), _stage("test_rules")
TIMERS, FOLLOWING = _stage("test_timers"), _stage("test_following")
INVESTIGATIONS = _stage("test_following_investigations")
REPORTS, BOOK = _stage("api/test_events"), _stage("criteria/test_rulebook")
AT_ONCE, HELD = _stage("test_at_once"), _stage("test_held_rows")
RULES_AT_ONCE = _stage("test_rules_at_once")
AUTOMATION = "orchestrator/automation/"

MUTANTS = (
    # --- matching ---
    Mutant(
        "event that was evaluated is evaluated again",
        AUTOMATION + "matching.py",
        "Event.objects.unevaluated().filter(pk__in=ids)\n        events",
        "Event.objects.filter(pk__in=ids)\n        events",
        (
            MATCHING,
            AT_ONCE,
        ),
    ),
    Mutant(
        "evaluation is not noted",
        AUTOMATION + "matching.py",
        "        _note_evaluated(answers, now)\n        rejected =",
        "        rejected =",
        (MATCHING,),
    ),
    Mutant(
        "rule that breaks is dropped",
        AUTOMATION + "matching.py",
        "        if outcome.broken:\n",
        "        if outcome.broken:\n            continue\n        if outcome.broken:\n",
        (MATCHING,),
    ),
    Mutant(
        "replay asks all rules",
        AUTOMATION + "matching.py",
        "rules = book.by_trigger.get(event.trigger_id) if only is None else book.by_rule.get(only)",
        "rules = book.by_trigger.get(event.trigger_id)",
        (
            MATCHING,
            REPORTS,
        ),
    ),
    Mutant(
        "rule that matches is announced to nobody",
        AUTOMATION + "matching.py",
        "transaction.on_commit(partial(_carry_out, wanted, now=now, actor=actor))",
        "pass",
        (MATCHING,),
    ),
    Mutant(
        "rules are read once for ever",
        AUTOMATION + "rulebook.py",
        "if book is None or book.stamp != stamp:",
        "if book is None:",
        (AT_ONCE,),
    ),
    Mutant(
        "change of a rule is kept from those who remember rules",
        AUTOMATION + "rules.py",
        "    Revision.objects.advance()\n",
        "",
        (
            RULES,
            AT_ONCE,
        ),
    ),
    Mutant(
        "rule is switched while another one changes",
        AUTOMATION + "rules.py",
        "    Revision.objects.lock()\n    find(ref)",
        "    find(ref)",
        (RULES_AT_ONCE,),
    ),
    Mutant(
        "rule is installed while another one changes",
        AUTOMATION + "rules.py",
        "    Revision.objects.lock()\n    if principal",
        "    if principal",
        (RULES_AT_ONCE,),
    ),
    Mutant(
        "disabled rule is asked",
        AUTOMATION + "models/rules.py",
        "return self.filter(Q(enabled_override=True) | by_pack, retired_at__isnull=True)",
        "return self.filter(retired_at__isnull=True)",
        (
            RULES,
            AT_ONCE,
        ),
    ),
    Mutant(
        "backstop answers beside another rule",
        AUTOMATION + "criteria/rulebook.py",
        "for rule in () if any_matched else self._backstops:",
        "for rule in self._backstops:",
        (BOOK,),
    ),
    Mutant(
        "event that somebody holds is waited for",
        AUTOMATION + "models/reads.py",
        'select_for_update(skip_locked=True, of=("self",), no_key=True)',
        'select_for_update(of=("self",), no_key=True)',
        (HELD,),
    ),
    Mutant(
        "event of a clock that was ahead is overlooked for ever",
        AUTOMATION + "models/events.py",
        "Q(received_at__lte=now - grace) | Q(received_at__gt=latest)",
        "Q(received_at__lte=now - grace)",
        (AT_ONCE,),
    ),
    Mutant(
        "rule may answer an event twice",
        AUTOMATION + "migrations/0001_initial.py",
        'models.F("rule"), models.F("event"), name="enforcement_of_rule_and_event_is_unique"',
        'models.F("id"), name="enforcement_of_rule_and_event_is_unique"',
        (AT_ONCE,),
    ),
    Mutant(
        "key may be of two events",
        AUTOMATION + "migrations/0001_initial.py",
        'models.F("dedup_key"),',
        'models.F("dedup_key"),\n                models.F("id"),',
        (AT_ONCE,),
    ),
    # --- enforcing ---
    Mutant(
        "enforcement that is settled is settled again",
        AUTOMATION + "enforcing.py",
        "Enforcement.objects.open().filter(pk__in=ids)",
        "Enforcement.objects.filter(pk__in=ids)",
        (
            ENFORCING,
            AT_ONCE,
        ),
    ),
    Mutant(
        "rule of a disabled owner runs",
        AUTOMATION + "enforcing.py",
        "if row.rule.owner_id is not None and row.rule.owner_id not in self.principals:",
        "if False:",
        (ENFORCING,),
    ),
    Mutant(
        "rule runs with the permissions of the installation",
        AUTOMATION + "enforcing.py",
        "self._request(group, None if owner_id is None else self.principals[owner_id])",
        "self._request(group, None)",
        (ENFORCING,),
    ),
    Mutant(
        "execution of an enforcement has no key",
        AUTOMATION + "enforcing.py",
        '        idempotency_key=f"{OWN_KEYS}enforcement:{row.pk}",\n',
        "",
        (ENFORCING,),
    ),
    Mutant(
        "what is refused takes the others along",
        AUTOMATION + "enforcing.py",
        "            if rest:\n                self._request(rest, principal)\n",
        "",
        (ENFORCING,),
    ),
    Mutant(
        "refused execution suppresses others",
        AUTOMATION + "enforcing.py",
        "                if each.row.pk in self.executed:\n",
        "                if True:\n",
        (ENFORCING,),
    ),
    # --- suppression ---
    Mutant(
        "two of a batch that are the same both run",
        AUTOMATION + "enforcing.py",
        "elif each.same in first:",
        "elif False:",
        (ENFORCING,),
    ),
    Mutant(
        "answer is suppressed a moment longer",
        AUTOMATION + "suppressing.py",
        "at < row.until <",
        "at <= row.until <",
        (ENFORCING,),
    ),
    Mutant(
        "answer of a clock that was ahead suppresses until it has come",
        AUTOMATION + "suppressing.py",
        "at < row.until <= latest",
        "at < row.until",
        (ENFORCING,),
    ),
    Mutant(
        "suppressed answers of two executors are not added up",
        AUTOMATION + "suppressing.py",
        'update(hits=F("hits") + hits)',
        "update(hits=hits)",
        (
            ENFORCING,
            AT_ONCE,
        ),
    ),
    Mutant(
        "suppressions are not locked",
        AUTOMATION + "suppressing.py",
        '    rows = rows.select_for_update(of=("self",), no_key=True)\n',
        "",
        (AT_ONCE,),
    ),
    # --- recording ---
    Mutant(
        "repeated report is an error",
        AUTOMATION + "recording.py",
        "ignore_conflicts=has_keys",
        "ignore_conflicts=False",
        (RECORDING,),
    ),
    Mutant(
        "repeated report passes for a new event",
        AUTOMATION + "recording.py",
        "is_new=holder == row.pk",
        "is_new=True",
        (RECORDING,),
    ),
    Mutant(
        "loop of rules has no end",
        AUTOMATION + "recording.py",
        "TOO_DEEP if new.depth >= DEEPEST else new.problem[:200]",
        "new.problem[:200]",
        (RECORDING,),
    ),
    Mutant(
        "anybody reports the end of an execution",
        AUTOMATION + "recording.py",
        "if kind.ref in BUILT_IN and not by_muster:",
        "if False:",
        (
            RECORDING,
            REPORTS,
        ),
    ),
    Mutant(
        "payload is not checked",
        AUTOMATION + "recording.py",
        "    for problem in packs.validate_value(new.trigger.type.payload_schema, payload):",
        "    for problem in ():",
        (RECORDING,),
    ),
    # --- timers ---
    Mutant(
        "event of a tick has no key",
        AUTOMATION + "timers.py",
        "        key=schedule.key(tick.scheduled_at),\n",
        "",
        (TIMERS,),
    ),
    Mutant(
        "timer that fired stays due",
        AUTOMATION + "timers.py",
        "        _move_on(fired)\n",
        "",
        (TIMERS,),
    ),
    Mutant(
        "all that many timers catch up is one transaction",
        AUTOMATION + "timers.py",
        "if len(news) >= ENOUGH_EVENTS:",
        "if False:",
        (TIMERS,),
    ),
    Mutant(
        "timer that cannot be used stays due",
        AUTOMATION + "timers.py",
        "        timer.next_fire_at = None\n        return",
        "        return",
        (TIMERS,),
    ),
    Mutant(
        "tick is dated by when it fired",
        AUTOMATION + "timers.py",
        "timer.last_fired_at = tick.scheduled_at",
        "timer.last_fired_at = None",
        (TIMERS,),
    ),
    Mutant(
        "timer without a rule goes on",
        AUTOMATION + "triggers.py",
        "    elif is_awake and not wanted:\n",
        "    elif False:\n",
        (TIMERS,),
    ),
    Mutant(
        "timer that wakes makes up for its sleep",
        AUTOMATION + "triggers.py",
        "last = timer.last_fired_at if trigger.type.ref == DATE else now",
        "last = timer.last_fired_at",
        (TIMERS,),
    ),
    Mutant(
        "timer of a clock that was ahead waits for it",
        AUTOMATION + "timers.py",
        "update(last_fired_at=now, next_fire_at=now)",
        "count()",
        (TIMERS,),
    ),
    Mutant(
        "without a sensor service one batch fires each second",
        AUTOMATION + "looking.py",
        "if not fired or time.monotonic() > until:",
        "if True:",
        (AT_ONCE,),
    ),
    # --- following ---
    Mutant(
        "history is passed over while somebody may still write it",
        AUTOMATION + "following.py",
        "        if is_settled:\n",
        "        if True:\n",
        (FOLLOWING,),
    ),
    Mutant(
        "history is passed over beyond what was seen before",
        AUTOMATION + "following.py",
        "min(present.seen_id, read_up_to)",
        "read_up_to",
        (FOLLOWING,),
    ),
    Mutant(
        "fault of one trigger of executions stops the others",
        AUTOMATION + "following.py",
        "sum(database.carry_out_each(parts).values())",
        "sum(part() for part in parts.values())",
        (FOLLOWING,),
    ),
    Mutant(
        "event of an execution that is refused stops the others",
        AUTOMATION + "recording.py",
        "rest = [new for index, new in enumerate(news) if index not in wrong]",
        "rest: list[NewEvent] = []",
        (FOLLOWING,),
    ),
    Mutant(
        "rule that led to an execution is not counted",
        AUTOMATION + "followed/executions.py",
        "known.get(row.execution_id, 0) + 1",
        "1",
        (FOLLOWING,),
    ),
    Mutant(
        "action that a trigger does not name is reported",
        AUTOMATION + "followed/executions.py",
        "patterns is None or any(",
        "True or any(",
        (FOLLOWING,),
    ),
    # --- investigations ---
    Mutant(
        "closing of an investigation is in no history",
        "orchestrator/core/investigations/closing.py",
        """DLQEntryEvent.objects.create(entry=entry, state=values["resolution_status"])""",
        "pass",
        (INVESTIGATIONS,),
    ),
    Mutant(
        "investigation is followed by its state of now",
        AUTOMATION + "followed/investigations.py",
        "rows.filter(state__in=",
        "rows.filter(entry__resolution_status__in=",
        (INVESTIGATIONS,),
    ),
    Mutant(
        "rule that led to an investigation is not counted",
        AUTOMATION + "followed/investigations.py",
        "known.get(row.entry.subject_id, 0) + 1",
        "1",
        (INVESTIGATIONS,),
    ),
    Mutant(
        "investigation of a loop of rules is a loop of its own",
        AUTOMATION + "followed/investigations.py",
        "[new for new in news if new.depth <= DEEPEST]",
        "news",
        (INVESTIGATIONS,),
    ),
    Mutant(
        "rule is told of investigations that its owner may not see",
        AUTOMATION + "rules.py",
        "authority.require(principal, permission, authority.WHOLE)",
        "authority.require(principal, permission)",
        (INVESTIGATIONS,),
    ),
)
