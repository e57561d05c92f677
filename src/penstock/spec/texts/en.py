"""The rules in English. Words in capitals bind as in RFC 2119."""

from __future__ import annotations

from typing import Final

STATEMENTS: Final[dict[str, str]] = {
    "1.1": (
        "A Publisher MUST at every moment have sent no more elements to a Subscriber than that Subscriber "
        "has asked for so far."
    ),
    "1.2": "A Publisher MAY send less than it was asked for and end the stream with on_complete or on_error.",
    "1.3": (
        "on_subscribe, on_next, on_error and on_complete MUST reach a Subscriber one after the other: "
        "whichever threads make the calls, one returns before the next begins."
    ),
    "1.4": "A Publisher that cannot go on MUST say so with on_error.",
    "1.5": "A Publisher whose stream comes to its natural end MUST say so with on_complete.",
    "1.6": (
        "Once a Publisher has sent on_error or on_complete, the Subscription in question MUST count as "
        "cancelled."
    ),
    "1.7": "After on_error or on_complete it is REQUIRED that nothing more is sent.",
    "1.8": "Signals to a Subscriber whose Subscription was cancelled MUST cease sooner or later.",
    "1.9": (
        "subscribe MUST send on_subscribe before anything else, and MUST return normally whatever happens; "
        "a refusal is on_subscribe followed by on_error. Only subscribe(None) MUST raise at the caller, in "
        "Python a TypeError."
    ),
    "1.10": (
        "subscribe MAY be called any number of times, but MUST be given a different Subscriber each time."
    ),
    "1.11": (
        "A Publisher MAY serve several Subscribers, and decides itself whether each has a stream of its own "
        "(unicast) or all share one (multicast)."
    ),
    "1.12": (
        "A Publisher MUST give all its Subscribers the same elements in the same order, from the oldest "
        "that it still has; for a while it MAY serve them at different rates."
    ),
    "2.1": "A Subscriber MUST ask with request(n) before it is sent any element.",
    "2.2": (
        "A Subscriber whose work could hold up its Publisher is RECOMMENDED to hand the signals to another "
        "thread, task or queue."
    ),
    "2.3": (
        "While it handles on_complete or on_error, a Subscriber MUST NOT call back into its Subscription or "
        "its Publisher."
    ),
    "2.4": (
        "A Subscriber that has received on_complete or on_error MUST regard its Subscription as cancelled."
    ),
    "2.5": "A Subscriber with an active Subscription that is handed another MUST cancel the new one.",
    "2.6": "A Subscriber that wants nothing more MUST cancel its Subscription instead of forgetting it.",
    "2.7": "A Subscriber MUST make its calls of request and cancel one after the other.",
    "2.8": (
        "A Subscriber that has cancelled MUST still put up with elements it had asked for before; cancel "
        "does not promise that everything is cleaned up at once."
    ),
    "2.9": (
        "A Subscriber MUST be ready for on_complete at any time, whether or not it has requested anything."
    ),
    "2.10": "A Subscriber MUST be ready for on_error at any time, whether or not it has requested anything.",
    "2.11": (
        "A Subscriber MUST see to it that a signal has arrived completely before it is processed: handing "
        "it to another thread has to be done safely."
    ),
    "2.12": "A Subscriber MUST be given on_subscribe once at most; equal objects count as one Subscriber.",
    "2.13": (
        "on_subscribe, on_next, on_error and on_complete MUST return normally, save that None as an "
        "argument MUST raise at the caller, in Python a TypeError. Otherwise the one way for a Subscriber "
        "to fail is to cancel. If it raises all the same, its Subscription MUST count as cancelled and the "
        "caller MUST make the error known in a suitable way."
    ),
    "3.1": (
        "request and cancel MUST only be called from within the Subscriber that the Subscription was made "
        "for."
    ),
    "3.2": "Calling request straight from on_subscribe or on_next MUST be possible.",
    "3.3": "request MUST limit how deeply Publisher and Subscriber can call each other on one stack.",
    "3.4": "request SHOULD hand control back to its caller without delay.",
    "3.5": ("cancel MUST return without delay, MUST be idempotent, and MUST be safe from any thread."),
    "3.6": "On a cancelled Subscription, request MUST do nothing.",
    "3.7": "On a cancelled Subscription, another cancel MUST do nothing.",
    "3.8": (
        "As long as the Subscription is not cancelled, request(n) MUST add n to what is still to be sent to "
        "its Subscriber."
    ),
    "3.9": (
        "As long as the Subscription is not cancelled, request(n) with n below 1 MUST lead to on_error with "
        "an illegal-argument error, in Python a ValueError. Its message SHOULD say that such a request is "
        "not allowed."
    ),
    "3.10": (
        "As long as the Subscription is not cancelled, request MAY call on_next, of this Subscriber or of "
        "others, before it returns."
    ),
    "3.11": (
        "As long as the Subscription is not cancelled, request MAY call on_complete or on_error, of this "
        "Subscriber or of others, before it returns."
    ),
    "3.12": (
        "On a Subscription that is not cancelled yet, cancel MUST bring the Publisher to stop signalling "
        "the Subscriber sooner or later; it is NOT REQUIRED to take effect at once."
    ),
    "3.13": (
        "On a Subscription that is not cancelled yet, cancel MUST bring the Publisher to let go of the "
        "Subscriber sooner or later, so that no reference is left."
    ),
    "3.14": "cancel MAY shut down a Publisher that keeps state, if it was the last Subscription.",
    "3.15": "A call of cancel MUST end without an exception.",
    "3.16": "A call of request MUST end without an exception.",
    "3.17": (
        "A Subscription MUST cope with any number of calls of request, and MUST cope with a demand of up to "
        "2^63-1; from there on a Publisher MAY take the demand as unbounded."
    ),
    "4.1": "A Processor is a Subscriber and a Publisher at once, and MUST keep the rules of both.",
    "4.2": (
        "A Processor MAY recover from an on_error that it receives, and MUST then regard its Subscription "
        "as cancelled; if it does not recover, it MUST pass the error to its Subscribers at once."
    ),
}
"""What each rule demands or allows, by id."""

INTENTS: Final[dict[str, str]] = {
    "1.1": (
        "Demand is what bounds every buffer downstream. An element can only follow the request that made "
        "room for it, so a delivery always happens after its request, even across threads."
    ),
    "1.2": (
        "A request is a permission, not a guarantee: the source may run dry, be empty from the start, or "
        "fail half-way."
    ),
    "1.3": (
        "Several threads may take turns if each turn is handed over safely. A Subscriber can then be "
        "written without locks."
    ),
    "1.4": (
        "Silence looks the same as slowness. Only a failure that is told lets the Subscriber release what "
        "it holds, or try something else."
    ),
    "1.5": (
        "A Subscriber cannot guess that nothing more will come. Being told, it can finish its work and free "
        "its resources."
    ),
    "1.6": (
        "There is only one kind of finished Subscription: whether the Subscriber left or the Publisher "
        "ended, the same rules apply from then on."
    ),
    "1.7": (
        "An end that something can follow is not an end, and Subscribers take everything down when they "
        "hear of it."
    ),
    "1.8": (
        "Leaving has to work. It need not work at once, because what is already on its way cannot be called "
        "back."
    ),
    "1.9": (
        "The Subscriber holds its Subscription before anything else can arrive and has time to prepare; a "
        "refusal travels the same way as any failure. Where there is no Subscriber, only the caller is left "
        "to be told."
    ),
    "1.10": (
        "Nobody can assume that a Publisher or a Subscriber survives being connected twice to the same "
        "partner; and every call of subscribe has to keep its promises, not only the first."
    ),
    "1.11": (
        "How many Subscribers there can be, and how elements are spread over them, is left to the "
        "implementation."
    ),
    "1.12": (
        "All read one log, each at its own position. A late or slow Subscriber sees the same "
        "history as the others, as far back as it is kept, and a quick one need not wait."
    ),
    "2.1": (
        "Only the Subscriber knows when it has room, and for how much. Ask for as much as fits, since "
        "asking one by one costs a round trip for each element; and ask last in a signal method, so that a "
        "Publisher which answers on the spot cannot upset the order."
    ),
    "2.2": (
        "Signal methods run on the Publisher's thread. A slow one takes computing time from the Publisher "
        "and from everybody it serves."
    ),
    "2.3": (
        "The stream is being taken down at that moment; calling back would turn the end into loops and races."
    ),
    "2.4": (
        "What the Publisher has ended is over for both sides; asking on a finished Subscription leads "
        "nowhere."
    ),
    "2.5": (
        "Two Publishers must not both believe that they feed the same Subscriber: together they would "
        "exceed its demand, and the surplus Subscription would leak."
    ),
    "2.6": (
        "Somebody upstream keeps a place, a buffer or a socket open. Only cancel frees it in good time, for "
        "example when the one element that was looked for has come."
    ),
    "2.7": (
        "Several threads may use a Subscription in turn, as long as it is certain that their calls do not "
        "overlap."
    ),
    "2.8": "A cancellation needs time to travel upstream, and elements may pass it on their way down.",
    "2.9": (
        "The end does not need demand: an empty or a short stream can end at once, and no Subscriber has to "
        "poll for the end."
    ),
    "2.10": "Failing has nothing to do with demand; the Subscriber hears of it without asking.",
    "2.11": (
        "A Subscriber that processes signals asynchronously is responsible for thread safety. In Python a "
        "queue, a lock, or call_soon_threadsafe of the event loop provides it."
    ),
    "2.12": "A Subscriber can be written for a single use and need not expect to begin again.",
    "2.13": (
        "A broken Subscriber should not bring its Publisher down. As the error cannot be sent to the one "
        "that is broken, it is logged or handed to a monitor."
    ),
    "3.1": (
        "A Subscription joins one Subscriber to one Publisher. That Subscriber alone decides when elements "
        "are wanted, and when no longer."
    ),
    "3.2": (
        "request has to be re-entrant: a synchronous Publisher may answer with on_next on the same thread "
        "while the first call is still on the stack."
    ),
    "3.3": (
        "Without a limit, on_next → request → on_next → … ends in a RecursionError. The recommended depth "
        "is one: the call that is already delivering takes up the new demand."
    ),
    "3.4": (
        "It runs on the Subscriber's thread, often in the middle of a signal; heavy work in it brings the "
        "caller to a halt."
    ),
    "3.5": (
        "Leaving has to be possible at any moment, from anywhere, as often as one likes, and without "
        "waiting for the clean-up."
    ),
    "3.6": "A request that follows a cancellation, or crosses it, must not wake the stream up again.",
    "3.7": "This says once more what §3.5 demands: repeating cancel is harmless.",
    "3.8": "Requests add up, and none of them gets lost on the way to the Publisher.",
    "3.9": (
        "Asking for nothing, or for less, is nearly always a miscalculation in the Subscriber. It should "
        "come to light instead of bringing the stream to a silent halt."
    ),
    "3.10": "Publishers may be synchronous and work on the thread that asks.",
    "3.11": "A synchronous Publisher may come to its end, or fail, on the thread that asks.",
    "3.12": "The wish to leave is respected, even if it takes a while to reach the source.",
    "3.13": (
        "A Subscriber that has left can be garbage-collected. Subscribing the same object again is "
        "discouraged (§2.12) but not forbidden, because forbidding it would mean to remember forever who "
        "has left."
    ),
    "3.14": (
        "A shared source may stop with its last Subscriber, and answer those who come later with "
        "on_subscribe followed by on_complete or on_error (§1.9)."
    ),
    "3.15": "A Subscriber that cancels can do nothing about a failure on the other side.",
    "3.16": (
        "If a request cannot be served, the stream has failed: that goes to on_error and not into the "
        "Subscriber's call."
    ),
    "3.17": (
        "Requests may have any positive size and come as often as one likes. Even at one element per "
        "nanosecond 2^63-1 elements take 292 years, so from there on counting is pointless."
    ),
    "4.1": (
        "A stage in the middle has no rules of its own: each of its sides is judged like any "
        "other of its kind."
    ),
    "4.2": (
        "A stage can do more than transform: it may retry, replace or resume. What it does not deal with, "
        "it must not hold back."
    ),
}
"""Why each rule is there, by id."""

ADDENDA: Final[dict[str, str]] = {
    "3.9": (
        "The Aquifer document is stricter: the message MUST name this rule or quote it. Penstock names it."
    ),
}
"""What one of the documents asks for beyond the others, by id."""
