"""The words that the rules use in a sense of their own, in three languages: the word, and what it means.

The Reactive Streams document has a glossary since 1.0.1. ``eventually`` is not in it, but the rules use it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

ENGLISH: Final[Mapping[str, tuple[str, str]]] = {
    "signal": (
        "Signal",
        "As a noun: a call of on_subscribe, on_next, on_error, on_complete, request or cancel. As a verb: to "
        "make such a call.",
    ),
    "demand": (
        "Demand",
        "The number of elements that a Subscriber has requested and the Publisher has not sent yet.",
    ),
    "synchronous": ("Synchronous", "Done on the thread that makes the call, before the call returns."),
    "return-normally": (
        "Return normally",
        "To come back to the caller without an exception. A Subscriber tells of a failure by cancel only, a "
        "Publisher and a Subscription by on_error only.",
    ),
    "responsivity": (
        "Responsivity",
        "How ready a part of a program is to answer. No part may keep another from answering.",
    ),
    "non-obstructing": (
        "Non-obstructing",
        "Said of a method that gives the calling thread back quickly: it does not wait, and it does not "
        "compute for long. Otherwise one side could stop the other.",
    ),
    "terminal-state": (
        "Terminal state",
        "For a Publisher: it has sent on_complete or on_error. For a Subscriber: it has received one of "
        "them.",
    ),
    "nop": ("NOP", "A call that has no effect, on any thread and however often it is made."),
    "serial": (
        "Serial",
        "One after the other: a call begins when the one before it has returned. The calls may come from "
        "several threads if these hand over to each other safely.",
    ),
    "thread-safe": (
        "Thread-safe",
        "Safe to call from several threads, at the same time or in turn, without help from the caller.",
    ),
    "eventually": (
        "Eventually",
        "At some time, without fail. The rules set no limit, and the word does not mean soon: what was on "
        "its way before may still arrive.",
    ),
}

CHINESE: Final[Mapping[str, tuple[str, str]]] = {
    "signal": (
        "信号",
        "名词：对 on_subscribe、on_next、on_error、on_complete、request 或 cancel 的一次调用。动词：进行这样"
        "的调用。",
    ),
    "demand": ("需求量", "Subscriber 已经请求而 Publisher 尚未发出的元素个数。"),
    "synchronous": ("同步", "在发起调用的线程上完成，并且在调用返回之前完成。"),
    "return-normally": (
        "正常返回",
        "不抛出异常地回到调用者。Subscriber 只能用 cancel 表示失败，Publisher 和 Subscription 只能用 "
        "on_error。",
    ),
    "responsivity": (
        "响应能力",
        "程序的某个部分随时能够作出回应的程度。任何部分都不得妨碍其他部分作出回应。",
    ),
    "non-obstructing": (
        "不阻碍",
        "指方法很快把线程还给调用者：既不等待，也不长时间计算。否则一方就能使另一方停下来。",
    ),
    "terminal-state": (
        "终止状态",
        "对 Publisher 而言：已经发出 on_complete 或 on_error。对 Subscriber 而言：已经收到其中之一。",
    ),
    "nop": ("空操作", "没有任何效果的调用，无论在哪个线程上，也无论调用多少次。"),
    "serial": (
        "逐个",
        "一个接一个：前一个调用返回之后，后一个才开始。只要线程之间的交接是安全的，这些调用可以来自多个线程。",
    ),
    "thread-safe": ("线程安全", "可以由多个线程同时或轮流调用，调用者不必采取任何措施。"),
    "eventually": (
        "最终",
        "在某个时刻一定会发生。规则不规定期限，这个词也不表示“很快”：此前已在途中的信号仍可能到达。",
    ),
}

KOREAN: Final[Mapping[str, tuple[str, str]]] = {
    "signal": (
        "신호",
        "명사로는 on_subscribe, on_next, on_error, on_complete, request, cancel 가운데 하나를 부르는 "
        "호출이다. 동사로는 그런 호출을 하는 것이다.",
    ),
    "demand": ("수요", "Subscriber가 요청했지만 Publisher가 아직 보내지 않은 요소의 수."),
    "synchronous": ("동기", "호출한 스레드에서, 그 호출이 돌아오기 전에 이루어지는 것."),
    "return-normally": (
        "정상적으로 돌아옴",
        "예외 없이 호출자에게 돌아오는 것. Subscriber는 cancel로만, Publisher와 Subscription은 on_error로만 "
        "실패를 알린다.",
    ),
    "responsivity": (
        "응답성",
        "프로그램의 한 부분이 응답할 준비가 되어 있는 정도. 어떤 부분도 다른 부분의 응답을 막아서는 안 된다.",
    ),
    "non-obstructing": (
        "막지 않음",
        "부른 스레드를 빨리 돌려주는 메서드를 이르는 말. 기다리지 않고 오래 계산하지도 않는다. 그렇지 않으면 "
        "한쪽이 다른 쪽을 멈추게 할 수 있다.",
    ),
    "terminal-state": (
        "종료 상태",
        "Publisher라면 on_complete나 on_error를 보낸 상태, Subscriber라면 그 가운데 하나를 받은 상태.",
    ),
    "nop": ("무동작", "어느 스레드에서 몇 번을 불러도 아무 효과가 없는 호출."),
    "serial": (
        "차례로",
        "하나씩 잇달아. 앞의 호출이 돌아온 뒤에 다음 호출이 시작된다. 안전하게 차례를 넘겨준다면 여러 "
        "스레드에서 와도 된다.",
    ),
    "thread-safe": (
        "스레드 안전",
        "호출하는 쪽이 따로 대비하지 않아도 여러 스레드에서 동시에 또는 번갈아 불러도 되는 것.",
    ),
    "eventually": (
        "언젠가는 반드시",
        "때는 정해져 있지 않지만 틀림없이 일어난다는 뜻. 규칙은 기한을 두지 않으며, 빨리 일어난다는 뜻이 "
        "아니다. 그 전에 길을 나선 신호는 여전히 도착할 수 있다.",
    ),
}
