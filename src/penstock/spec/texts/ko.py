"""The rules in Korean.

해야 한다 is MUST, 안 된다 MUST NOT, 바람직하다 SHOULD, 권장한다 RECOMMENDED, 해도 된다 MAY.
"""

from __future__ import annotations

from typing import Final

STATEMENTS: Final[dict[str, str]] = {
    "1.1": (
        "Publisher가 한 Subscriber에게 보낸 요소의 수는 어느 순간에도 그 Subscriber가 그때까지 요청한 수를 "
        "넘지 않아야 한다."
    ),
    "1.2": "Publisher는 요청받은 만큼 다 보내지 않고 on_complete나 on_error로 스트림을 끝내도 된다.",
    "1.3": (
        "on_subscribe, on_next, on_error, on_complete는 한 Subscriber에게 하나씩 차례로 전달되어야 한다. "
        "어느 스레드가 호출하든 앞의 호출이 돌아온 뒤에 다음 호출이 시작된다."
    ),
    "1.4": "더 나아갈 수 없는 Publisher는 on_error로 그 사실을 알려야 한다.",
    "1.5": "스트림이 자연스럽게 끝나면 Publisher는 on_complete로 그 사실을 알려야 한다.",
    "1.6": "Publisher가 on_error나 on_complete를 보냈다면 해당 Subscription은 취소된 것으로 보아야 한다.",
    "1.7": "on_error나 on_complete 뒤에는 아무것도 더 보내지 않아야 한다.",
    "1.8": "Subscription이 취소된 Subscriber에게 가는 신호는 언젠가는 반드시 그쳐야 한다.",
    "1.9": (
        "subscribe는 무엇보다 먼저 on_subscribe를 보내야 하고, 무슨 일이 있어도 정상적으로 돌아와야 한다. "
        "거절은 on_subscribe에 이은 on_error다. subscribe(None)만은 호출자에게 예외를 던져야 하며, "
        "Python에서는 TypeError다."
    ),
    "1.10": "subscribe는 몇 번이든 호출해도 되지만, 그때마다 다른 Subscriber를 넘겨야 한다.",
    "1.11": (
        "Publisher는 Subscriber를 여럿 두어도 되며, 저마다 따로 스트림을 가질지(유니캐스트) 하나를 함께 "
        "쓸지(멀티캐스트)는 스스로 정한다."
    ),
    "1.12": (
        "Publisher는 모든 Subscriber에게 같은 요소를 같은 순서로, 아직 가지고 있는 가장 오래된 것부터 "
        "주어야 한다. 한동안은 서로 다른 속도로 보내도 된다."
    ),
    "2.1": "Subscriber는 request(n)으로 먼저 요청해야 요소를 받는다.",
    "2.2": (
        "하는 일이 Publisher를 붙들 수 있는 Subscriber라면 신호를 다른 스레드나 태스크, 큐로 넘기기를 "
        "권장한다."
    ),
    "2.3": (
        "on_complete나 on_error를 처리하는 동안 Subscriber는 자기 Subscription이나 Publisher를 되부르면 안 "
        "된다."
    ),
    "2.4": "on_complete나 on_error를 받은 Subscriber는 자기 Subscription을 취소된 것으로 여겨야 한다.",
    "2.5": "활성 Subscription이 있는 Subscriber가 또 하나를 건네받으면 새것을 취소해야 한다.",
    "2.6": "더 바라는 것이 없는 Subscriber는 Subscription을 잊어버리지 말고 취소해야 한다.",
    "2.7": "Subscriber는 request와 cancel을 한 번에 하나씩 차례로 호출해야 한다.",
    "2.8": (
        "취소한 Subscriber라도 그 전에 요청한 요소가 오는 것은 감당해야 한다. cancel은 모두 바로 정리된다고 "
        "약속하지 않는다."
    ),
    "2.9": "Subscriber는 요청한 적이 있든 없든 언제라도 on_complete를 받을 채비가 되어 있어야 한다.",
    "2.10": "Subscriber는 요청한 적이 있든 없든 언제라도 on_error를 받을 채비가 되어 있어야 한다.",
    "2.11": (
        "Subscriber는 신호가 온전히 도착한 뒤에 처리되도록 해야 한다. 다른 스레드에 넘길 때는 안전하게 "
        "넘겨야 한다."
    ),
    "2.12": (
        "같은 Subscriber에게는 on_subscribe를 많아야 한 번 호출해야 한다. 동등한 객체는 같은 것으로 친다."
    ),
    "2.13": (
        "on_subscribe, on_next, on_error, on_complete는 정상적으로 돌아와야 한다. 단, 인자가 None이면 "
        "호출자에게 예외를 던져야 하며, Python에서는 TypeError다. 그 밖에 Subscriber가 실패를 나타내는 길은 "
        "취소뿐이다. 그래도 예외를 던진다면 그 Subscription은 취소된 것으로 보아야 하고, 호출자는 알맞은 "
        "방식으로 오류를 드러내야 한다."
    ),
    "3.1": "request와 cancel은 그 Subscription의 주인인 Subscriber 안에서만 호출해야 한다.",
    "3.2": "on_subscribe나 on_next 안에서 곧바로 request를 부를 수 있어야 한다.",
    "3.3": "request는 Publisher와 Subscriber가 한 스택에서 서로를 부르는 깊이를 제한해야 한다.",
    "3.4": "request는 지체하지 않고 호출자에게 제어를 돌려주는 것이 바람직하다.",
    "3.5": (
        "cancel은 지체 없이 돌아와야 하고, 거듭 불러도 해가 없어야 하며, 어느 스레드에서 불러도 안전해야 "
        "한다."
    ),
    "3.6": "취소된 Subscription에서 request는 아무 일도 하지 않아야 한다.",
    "3.7": "취소된 Subscription에서 또 부른 cancel은 아무 일도 하지 않아야 한다.",
    "3.8": (
        "Subscription이 취소되지 않은 한, request(n)은 그 Subscriber에게 앞으로 보낼 수에 n을 더해야 한다."
    ),
    "3.9": (
        "Subscription이 취소되지 않은 한, n이 1보다 작은 request(n)은 잘못된 인자를 뜻하는 오류를 담은 "
        "on_error로 이어져야 하며, Python에서는 ValueError다. 메시지는 그런 요청이 허용되지 않음을 밝히는 "
        "것이 바람직하다."
    ),
    "3.10": (
        "Subscription이 취소되지 않은 한, request는 돌아오기 전에 이 Subscriber나 다른 Subscriber의 "
        "on_next를 불러도 된다."
    ),
    "3.11": (
        "Subscription이 취소되지 않은 한, request는 돌아오기 전에 이 Subscriber나 다른 Subscriber의 "
        "on_complete나 on_error를 불러도 된다."
    ),
    "3.12": (
        "아직 취소되지 않은 Subscription에서 cancel은 Publisher가 언젠가는 반드시 그 Subscriber에게 신호를 "
        "보내지 않게 해야 한다. 당장 효과가 나타날 필요는 없다."
    ),
    "3.13": (
        "아직 취소되지 않은 Subscription에서 cancel은 Publisher가 언젠가는 반드시 그 Subscriber를 놓아 주어 "
        "참조가 남지 않게 해야 한다."
    ),
    "3.14": "마지막 Subscription이었다면 cancel은 상태를 가진 Publisher를 닫아도 된다.",
    "3.15": "cancel 호출은 예외를 던지지 않고 끝나야 한다.",
    "3.16": "request 호출은 예외를 던지지 않고 끝나야 한다.",
    "3.17": (
        "Subscription은 request가 몇 번 불리든 감당해야 하고, 2^63-1에 이르는 수요도 감당해야 한다. "
        "거기서부터 Publisher는 수요에 한도가 없다고 보아도 된다."
    ),
    "4.1": "Processor는 Subscriber이자 Publisher이며, 양쪽의 규칙을 모두 지켜야 한다.",
    "4.2": (
        "Processor는 받은 on_error로부터 복구해도 되며, 그때는 자기 Subscription을 취소된 것으로 여겨야 "
        "한다. 복구하지 않는다면 오류를 곧바로 자기 Subscriber들에게 전해야 한다."
    ),
}
"""What each rule demands or allows, by id."""

INTENTS: Final[dict[str, str]] = {
    "1.1": (
        "수요는 하류의 모든 버퍼를 제한하는 기준이다. 요소는 자리를 마련해 준 요청 뒤에만 올 수 있으므로, "
        "스레드가 달라도 전달은 항상 요청 다음에 일어난다."
    ),
    "1.2": (
        "요청은 허락이지 보장이 아니다. 원천이 바닥날 수도, 처음부터 비어 있을 수도, 도중에 실패할 수도 있다."
    ),
    "1.3": (
        "차례를 안전하게 넘겨준다면 여러 스레드가 번갈아 신호를 보내도 된다. 그래야 Subscriber를 잠금 없이 "
        "작성할 수 있다."
    ),
    "1.4": (
        "침묵은 느린 것과 구별되지 않는다. 실패를 들어야만 Subscriber가 쥐고 있던 것을 놓거나 다른 방법을 "
        "찾을 수 있다."
    ),
    "1.5": (
        "Subscriber는 더 올 것이 없음을 짐작할 수 없다. 알려 주어야 일을 마무리하고 자원을 놓아줄 수 있다."
    ),
    "1.6": (
        "끝난 Subscription은 한 가지뿐이다. Subscriber가 떠났든 Publisher가 끝냈든 그 뒤에는 같은 규칙이 "
        "적용된다."
    ),
    "1.7": "뒤에 무언가 올 수 있다면 끝이 아니다. Subscriber는 끝이라는 말을 듣고 모든 것을 정리한다.",
    "1.8": (
        "떠나는 일은 반드시 통해야 한다. 다만 이미 길을 나선 신호는 불러들일 수 없으므로 당장일 필요는 없다."
    ),
    "1.9": (
        "다른 것이 오기 전에 Subscriber는 Subscription을 손에 쥐고 준비할 수 있으며, 거절도 여느 실패와 "
        "같은 길로 온다. Subscriber가 없으면 알릴 상대는 호출자뿐이다."
    ),
    "1.10": (
        "Publisher든 Subscriber든 같은 상대와 두 번 연결되어도 괜찮다고 여길 수 없다. 또 subscribe는 첫 "
        "호출에서만이 아니라 부를 때마다 약속을 지켜야 한다."
    ),
    "1.11": "Subscriber를 몇이나 받을지, 요소를 어떻게 나누어 줄지는 구현에 맡긴다.",
    "1.12": (
        "모두가 하나의 로그를 저마다의 자리에서 읽는다. 늦게 왔거나 느려도 로그가 남아 있는 한 남들과 같은 "
        "이력을 보고, 빠른 쪽은 기다리지 않아도 된다."
    ),
    "2.1": (
        "언제, 얼마나 받을 자리가 있는지는 Subscriber만 안다. 하나씩 요청하면 요소마다 왕복이 한 번씩 "
        "들므로 들어갈 만큼 요청하고, 그 자리에서 답하는 Publisher가 순서를 흩뜨리지 않도록 신호 메서드의 "
        "맨 끝에서 요청하라."
    ),
    "2.2": (
        "신호 메서드는 Publisher의 스레드에서 돈다. 느리면 Publisher와 그 Publisher를 쓰는 모두의 계산 "
        "시간을 빼앗는다."
    ),
    "2.3": "그 순간 스트림은 해체되고 있다. 되부르면 끝맺음이 순환과 경쟁 상태로 바뀐다.",
    "2.4": "Publisher가 끝낸 것은 양쪽 모두에게 끝이다. 끝난 Subscription에 요청해 보아야 소용이 없다.",
    "2.5": (
        "두 Publisher가 모두 같은 Subscriber를 맡았다고 믿어서는 안 된다. 둘을 합치면 수요를 넘게 되고, "
        "남는 Subscription은 누수된다."
    ),
    "2.6": (
        "상류의 누군가가 자리나 버퍼, 소켓을 열어 두고 있다. 찾던 요소 하나가 왔을 때처럼, cancel을 "
        "불러야만 제때 풀려난다."
    ),
    "2.7": "호출이 겹치지 않는 것이 확실하다면 여러 스레드가 번갈아 Subscription을 써도 된다.",
    "2.8": "취소가 상류로 가는 데는 시간이 걸리고, 그 사이 내려오는 요소와 엇갈릴 수 있다.",
    "2.9": (
        "끝나는 데는 수요가 들지 않는다. 비었거나 짧은 스트림은 바로 끝날 수 있으며, 끝났는지 폴링할 필요가 "
        "없다."
    ),
    "2.10": "실패는 수요와 상관이 없다. Subscriber는 묻지 않아도 듣게 된다.",
    "2.11": (
        "신호를 비동기로 처리한다면 스레드 안전은 스스로 책임진다. Python에서는 큐나 잠금, 이벤트 루프의 "
        "call_soon_threadsafe가 그 역할을 한다."
    ),
    "2.12": "Subscriber는 한 번만 쓰도록 작성하면 되고, 다시 시작할 경우를 생각하지 않아도 된다.",
    "2.13": (
        "고장 난 Subscriber가 Publisher까지 쓰러뜨려서는 안 된다. 고장 난 쪽에 오류를 보낼 수는 없으니, "
        "로그에 남기거나 지켜보는 쪽에 넘긴다."
    ),
    "3.1": (
        "Subscription은 한 Subscriber와 한 Publisher를 잇는다. 언제 요소를 원하고 언제 더는 원하지 않는지는 "
        "그 Subscriber만이 정한다."
    ),
    "3.2": (
        "request는 재진입할 수 있어야 한다. 동기식 Publisher는 앞의 호출이 아직 스택에 있을 때 같은 "
        "스레드에서 on_next로 답할 수 있다."
    ),
    "3.3": (
        "제한이 없으면 on_next → request → on_next → …는 RecursionError로 끝난다. 권장 깊이는 1이다. 이미 "
        "전달하고 있는 쪽이 새 수요를 이어받는다."
    ),
    "3.4": (
        "request는 Subscriber의 스레드에서, 흔히 신호를 처리하는 도중에 돈다. 그 안에서 무거운 일을 하면 "
        "호출자가 멈춰 선다."
    ),
    "3.5": "떠나는 일은 언제 어디서나, 몇 번이고, 정리를 기다리지 않고 할 수 있어야 한다.",
    "3.6": "취소를 뒤따르거나 취소와 엇갈린 요청이 스트림을 다시 깨워서는 안 된다.",
    "3.7": "§3.5의 요구를 한 번 더 말한 것이다. 취소를 거듭해도 해롭지 않다.",
    "3.8": "요청은 쌓이며, 어느 것도 Publisher에게 가는 길에 사라지지 않는다.",
    "3.9": (
        "0개나 그보다 적게 요청하는 것은 거의 언제나 Subscriber의 계산 착오다. 스트림이 소리 없이 멈추는 "
        "대신 잘못이 드러나야 한다."
    ),
    "3.10": "Publisher는 동기식이어도 되며, 요청하는 스레드에서 일해도 된다.",
    "3.11": "동기식 Publisher는 요청하는 스레드에서 끝나거나 실패할 수 있다.",
    "3.12": "떠나겠다는 뜻은 원천에 닿기까지 시간이 걸리더라도 존중된다.",
    "3.13": (
        "떠난 Subscriber는 가비지 컬렉션의 대상이 될 수 있다. 같은 객체로 다시 구독하는 것은 권하지 "
        "않지만(§2.12) 금하지도 않는다. 금하려면 누가 떠났는지 영원히 기억해야 하기 때문이다."
    ),
    "3.14": (
        "함께 쓰는 원천은 마지막 Subscriber와 함께 멈추고, 나중에 오는 쪽에는 on_subscribe에 이어 "
        "on_complete나 on_error로 답할 수 있다(§1.9)."
    ),
    "3.15": "떠나는 쪽은 상대편의 고장에 대해 할 수 있는 일이 없다.",
    "3.16": (
        "요청을 들어줄 수 없다면 스트림이 실패한 것이다. 그것은 Subscriber의 호출이 아니라 on_error로 간다."
    ),
    "3.17": (
        "요청은 양수이면 크기에 상관없이, 얼마든지 자주 할 수 있다. 1나노초에 하나씩이라도 2^63-1개에는 "
        "292년이 걸리니, 거기서부터는 아무도 셀 필요가 없다."
    ),
    "4.1": "중간 단계를 위한 셋째 규칙은 없다. 양쪽 면은 저마다 같은 부류의 다른 것과 똑같이 판단된다.",
    "4.2": (
        "단계가 하는 일은 변환만이 아니다. 다시 시도하거나, 바꾸어 놓거나, 이어 갈 수도 있다. 스스로 다루지 "
        "않는 오류를 붙들고 있어서는 안 된다."
    ),
}
"""Why each rule is there, by id."""

ADDENDA: Final[dict[str, str]] = {
    "3.9": (
        "Aquifer 문서는 더 엄격하다. 메시지가 이 규칙을 가리키거나 인용해야 한다. Penstock은 규칙의 번호를 "
        "적는다."
    ),
}
"""What one of the documents asks for beyond the others, by id."""
