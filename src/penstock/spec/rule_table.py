"""The table of the rules: whom each binds and how strongly, what the releases changed, how it is checked.

What a rule says, and why, is in :mod:`penstock.spec.texts`, one module for each language.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock.spec.rule_model import Change, Check, Level, Origin, Rule, Subject

VERSIONS: Final[Mapping[str, str]] = {
    "1.0.0": "30 April 2015: the first final release, with all 43 rules.",
    "1.0.1": (
        "9 August 2017: a glossary, and an intent for every rule; several rules shortened in return. The "
        "message of §3.9 SHOULD explain the mistake; before, it MUST cite the rule."
    ),
    "1.0.2": "19 December 2017: “thread-safe” explained in the glossary; three intents reworded.",
    "1.0.3": "23 August 2019: §1.3 and §2.7 speak of “serial” calls; longer intents of §2.1 and §2.5.",
    "1.0.4": "20 May 2022: a new licence; the intent of §2.7 speaks of “serial” too.",
}
"""The releases of the Reactive Streams specification.

One of them changed what an implementation has to do: since 1.0.1 the error of §3.9 no longer has to cite the
rule. An error that cites it, as ours does, satisfies all releases.
"""

_MUST, _MUST_NOT, _REQUIRED, _SHOULD = Level.MUST, Level.MUST_NOT, Level.REQUIRED, Level.SHOULD
_RECOMMENDED, _MAY, _NOT_REQUIRED = Level.RECOMMENDED, Level.MAY, Level.NOT_REQUIRED
_GUARD, _KIT, _REVIEW, _NOTHING = Check.GUARD, Check.KIT, Check.REVIEW, Check.NOTHING

_SUBJECTS = {
    "1": Subject.PUBLISHER,
    "2": Subject.SUBSCRIBER,
    "3": Subject.SUBSCRIPTION,
    "4": Subject.PROCESSOR,
}


def _rule(
    id: str,
    levels: tuple[Level, ...],
    checks: tuple[Check, ...],
    checked_how: str,
    changes: Mapping[str, str] | None = None,
    origin: Origin = Origin.REACTIVE_STREAMS,
    since: str = "1.0.0",
    new_duty_in: str = "",
) -> Rule:
    history = tuple(
        Change(version, what, duty=version == new_duty_in) for version, what in (changes or {}).items()
    )
    return Rule(id, _SUBJECTS[id[0]], levels, origin, since, history, checks, checked_how)


_FOOTNOTE_TO_INTENT = "A footnote became part of the intent."

ALL_RULES: Final[tuple[Rule, ...]] = (
    _rule(
        "1.1",
        (_MUST,),
        (_GUARD, _KIT),
        "The guard counts: an element beyond demand is held back, upstream is cancelled, and the Subscriber "
        "gets the violation. The kit asks in small portions and counts as well.",
        {"1.0.1": "Spelling only."},
    ),
    _rule(
        "1.2",
        (_MAY,),
        (_KIT,),
        "A permission; the kit asks for more than there is and expects the end.",
        {"1.0.1": "Spelling only."},
    ),
    _rule(
        "1.3",
        (_MUST,),
        (_GUARD, _KIT),
        "The guard notices calls that overlap on two threads and lets them through one by one. The kit "
        "watches in every test, asks from another thread while on_next runs, and provokes overlaps in one "
        "test more; it may miss some.",
        {
            "1.0.1": "Signals “in sequence” became thread-safe signals with external synchronisation.",
            "1.0.2": "“Thread-safe” refers to the new entry in the glossary.",
            "1.0.3": "Signals have to be “serial”, a new term that replaces external synchronisation.",
        },
    ),
    _rule(
        "1.4",
        (_MUST,),
        (_KIT,),
        "The kit asks for a Publisher that fails and expects on_error. A guard cannot tell a failure that "
        "is kept quiet from a slow source.",
    ),
    _rule(
        "1.5",
        (_MUST,),
        (_KIT,),
        "The kit expects on_complete after the last element. A guard cannot know which one is the last.",
    ),
    _rule(
        "1.6",
        (_MUST,),
        (_GUARD, _KIT),
        "After the end the guard passes neither request nor cancel on to the Publisher. The kit calls both "
        "after on_complete and after on_error, expects silence, and looks whether the Subscriber is let go.",
    ),
    _rule(
        "1.7",
        (_REQUIRED,),
        (_GUARD, _KIT),
        "The guard drops and reports whatever follows the end; the kit goes on asking after both ends and "
        "listens.",
    ),
    _rule(
        "1.8",
        (_MUST,),
        (_GUARD, _KIT),
        "Signals may arrive for a while after a cancellation, so the guard drops them without a word; the "
        "kit waits for them to cease, and takes no end for an answer to cancel.",
    ),
    _rule(
        "1.9",
        (_MUST,),
        (_GUARD, _KIT),
        "The guard reports a signal before on_subscribe and a subscribe that raises, and makes of both an "
        "on_subscribe followed by on_error; subscribe(None) raises. The kit tries all three, and subscribes "
        "again when a stream is over.",
    ),
    _rule(
        "1.10",
        (_MUST, _MAY),
        (_GUARD,),
        "The guard on a Publisher reports and turns away a Subscriber that is still subscribed to it, by "
        "identity; it does not remember who has left (§3.13).",
    ),
    _rule(
        "1.11",
        (_MAY,),
        (_KIT,),
        "A permission; the kit subscribes several times if the Publisher says that it allows that, and has "
        "one of the Subscribers leave.",
    ),
    _rule(
        "1.12",
        (_MUST, _MAY),
        (_KIT, _REVIEW),
        "The multicast tests of the kit compare what several Subscribers received; which element is the "
        "oldest still available only the Publisher knows.",
        origin=Origin.AQUIFER,
        since="Aquifer, 13 March 2015",
    ),
    _rule(
        "2.1",
        (_MUST,),
        (_KIT,),
        "The kit expects a request. A guard cannot tell a Subscriber that never asks from one that has no "
        "room.",
        {"1.0.3": "The intent advises to call the Subscription last, and to ask for as much as fits."},
    ),
    _rule(
        "2.2",
        (_RECOMMENDED,),
        (_REVIEW,),
        "How slow is too slow depends on the Publisher.",
        {"1.0.2": "The intent was reworded."},
    ),
    _rule(
        "2.3",
        (_MUST_NOT,),
        (_GUARD, _KIT),
        "The guard on a Subscriber reports request and cancel from the thread that is running on_complete "
        "or on_error, and does not pass them on; the kit ends streams and looks for the same. Calls to the "
        "Publisher neither can see.",
    ),
    _rule(
        "2.4",
        (_MUST,),
        (_GUARD, _KIT),
        "After the end the guard passes neither request nor cancel on; the kit brings the Subscriber to ask "
        "and to cancel and expects that neither arrives.",
    ),
    _rule(
        "2.5",
        (_MUST,),
        (_GUARD, _KIT),
        "The guard cancels a second Subscription in the Subscriber's place and reports its sender "
        "(§2.12); the kit hands over two and expects one to be cancelled.",
        {"1.0.3": "The intent says what goes wrong otherwise."},
    ),
    _rule(
        "2.6",
        (_MUST,),
        (_KIT, _REVIEW),
        "That a Subscription is no longer needed cannot be seen from outside. Of a Subscriber that lets the "
        "kit pull its strings, the kit expects that cancel arrives when it is told to leave.",
        {"1.0.1": "“No longer valid to the Publisher” became “no longer needed”."},
    ),
    _rule(
        "2.7",
        (_MUST,),
        (_GUARD, _KIT),
        "The guard on a Subscriber reports requests that overlap on two threads and passes them on one by "
        "one; it passes a cancel on at once, beside whatever goes on. The kit makes requests slow and looks "
        "for a request or a cancel that overlaps with one, which it may miss.",
        {
            "1.0.3": "“The same thread or external synchronisation” became “serially”.",
            "1.0.4": "The intent says “serial” instead of “happens-before”.",
        },
    ),
    _rule(
        "2.8",
        (_MUST,),
        (_GUARD, _KIT),
        "Behind a guard, a Subscriber that has cancelled gets nothing more; the kit sends it an element that "
        "it had asked for before.",
        {"1.0.2": "The intent was reworded."},
    ),
    _rule("2.9", (_MUST,), (_KIT,), "The kit completes the stream before and after a request."),
    _rule("2.10", (_MUST,), (_KIT,), "The kit fails the stream before and after a request."),
    _rule(
        "2.11",
        (_MUST,),
        (_REVIEW,),
        "A hand-over that is not safe shows only by chance.",
        {"1.0.1": "“Signal” replaces “onXXX methods”; a footnote became part of the intent."},
    ),
    _rule(
        "2.12",
        (_MUST,),
        (_GUARD, _KIT),
        "The guard cancels and reports a second Subscription; the kit notices one in every test of a "
        "Publisher. Sameness is identity: asking for equality would call code of the Subscriber.",
    ),
    _rule(
        "2.13",
        (_MUST,),
        (_GUARD, _KIT),
        "The guard catches what a Subscriber raises, cancels and reports; None raises TypeError at the "
        "caller. The kit tries None, elements that are false and signals from other threads, and sends "
        "whole streams in which nothing may be raised. To a Publisher it raises itself, and expects that it "
        "then hears nothing more.",
    ),
    _rule(
        "3.1",
        (_MUST,),
        (_REVIEW,),
        "It cannot be seen from outside on whose behalf a request is made.",
        {"1.0.1": "A sentence on the relation between the two sides became part of the intent."},
    ),
    _rule("3.2", (_MUST,), (_KIT,), "The kit asks from inside both methods and counts what comes."),
    _rule(
        "3.3",
        (_MUST,),
        (_GUARD, _KIT),
        "Behind a guard the depth is one whatever the Publisher does: a request made inside a signal goes "
        "on when the signal has returned. The kit measures the depth, also in a stream with more elements "
        "than the stack has room for.",
        {"1.0.1": _FOOTNOTE_TO_INTENT, "1.0.2": "The intent was reworded."},
    ),
    _rule(
        "3.4",
        (_SHOULD,),
        (_KIT, _REVIEW),
        "What counts as a delay depends on the caller; the kit tells if the quickest of three requests takes "
        "longer than a tenth of a second, or what the test class says, and does not fail it for that.",
        {"1.0.1": _FOOTNOTE_TO_INTENT},
    ),
    _rule(
        "3.5",
        (_MUST,),
        (_GUARD, _KIT),
        "The guard passes on the first cancel only, at once and from whichever thread; the kit takes the "
        "time of it, calls it while on_next runs on another thread, and from four threads at once.",
        {"1.0.1": _FOOTNOTE_TO_INTENT, "1.0.2": "“Thread-safe” refers to the new entry in the glossary."},
    ),
    _rule(
        "3.6", (_MUST,), (_GUARD, _KIT), "The guard passes no request on; the kit asks and expects silence."
    ),
    _rule("3.7", (_MUST,), (_GUARD, _KIT), "The guard passes on the first cancel only; the kit repeats it."),
    _rule("3.8", (_MUST,), (_KIT,), "The kit asks in portions and expects their sum."),
    _rule(
        "3.9",
        (_MUST, _SHOULD),
        (_GUARD, _KIT),
        "The guard on a Publisher answers in its place with the violation; the guard on a Subscriber "
        "reports the request and passes it on. The kit asks for none and for fewer, also inside signals and "
        "after unbounded demand.",
        {"1.0.1": "The message SHOULD explain the mistake; in 1.0.0 it MUST cite this rule."},
        new_duty_in="1.0.1",
    ),
    _rule(
        "3.10",
        (_MAY,),
        (_KIT,),
        "A permission; the kit makes use of it and expects that the Subscriber copes.",
    ),
    _rule(
        "3.11",
        (_MAY,),
        (_KIT,),
        "A permission; the kit makes use of it and expects that the Subscriber copes.",
    ),
    _rule(
        "3.12",
        (_MUST, _NOT_REQUIRED),
        (_GUARD, _KIT),
        "Behind a guard the Subscriber hears nothing more at once; the kit counts what still arrives, with "
        "unbounded demand as well, and learns the pace of a slow Publisher.",
    ),
    _rule(
        "3.13",
        (_MUST,),
        (_GUARD, _KIT),
        "The guard lets go of the Subscriber even if the Publisher keeps the guard; the kit looks whether "
        "the Subscriber is collected.",
        {"1.0.1": "The advice on subscribing again became part of the intent."},
    ),
    _rule("3.14", (_MAY,), (_NOTHING,), "A permission: a Publisher may as well stay open."),
    _rule(
        "3.15",
        (_MUST,),
        (_GUARD, _KIT),
        "The guard catches and reports the exception; so does the kit, in every test.",
        {"1.0.1": "“Return normally” is explained in the glossary."},
    ),
    _rule(
        "3.16",
        (_MUST,),
        (_GUARD, _KIT),
        "The guard catches and reports the exception, and sends it to on_error; the kit reports it, in every "
        "test.",
        {"1.0.1": "“Return normally” is explained in the glossary."},
    ),
    _rule(
        "3.17",
        (_MUST, _MAY),
        (_GUARD, _KIT),
        "The guard adds demand up to 2^63-1 and stays there; the kit asks for that much and for more, and "
        "expects that elements go on coming.",
        {"1.0.1": "“Demand” is explained in the glossary; a footnote became part of the intent."},
    ),
    _rule(
        "4.1",
        (_MUST,),
        (_GUARD, _KIT),
        "Guard and kit treat a Processor as both. The kit also compares what goes in and what comes out, "
        "asks before there is an upstream, and has one of two Subscribers leave.",
    ),
    _rule(
        "4.2",
        (_MUST, _MAY),
        (_KIT,),
        "The kit fails the upstream and expects the same error downstream, ahead of elements that nobody "
        "has asked for. Of a Processor that recovers it says nothing.",
    ),
)
