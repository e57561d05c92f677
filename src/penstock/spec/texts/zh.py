"""The rules in Chinese.

必须 is MUST, 不得 MUST NOT, 应当 SHOULD, 建议 RECOMMENDED, 可以 MAY.
"""

from __future__ import annotations

from typing import Final

STATEMENTS: Final[dict[str, str]] = {
    "1.1": "Publisher 发给某个 Subscriber 的元素总数，在任何时刻都必须不超过该 Subscriber 至今请求的总数。",
    "1.2": "Publisher 可以还没有发满所请求的数量，就用 on_complete 或 on_error 结束流。",
    "1.3": (
        "发给同一个 Subscriber 的 on_subscribe、on_next、on_error 和 on_complete 必须逐个进行：无论由哪些线"
        "程发出，前一个调用返回之后，后一个才能开始。"
    ),
    "1.4": "无法继续工作的 Publisher 必须用 on_error 说明。",
    "1.5": "流正常到达终点时，Publisher 必须用 on_complete 说明。",
    "1.6": "Publisher 发出 on_error 或 on_complete 之后，对应的 Subscription 必须视为已取消。",
    "1.7": "发出 on_error 或 on_complete 之后，必须不再发出任何信号。",
    "1.8": "Subscription 取消之后，发给其 Subscriber 的信号迟早必须停止。",
    "1.9": (
        "subscribe 必须先发 on_subscribe，再发其他信号，并且无论发生什么都必须正常返回；拒绝的方式是 "
        "on_subscribe 之后接 on_error。只有 subscribe(None) 必须向调用者抛出异常，在 Python 中是 TypeError。"
    ),
    "1.10": "subscribe 可以调用任意多次，但每次必须传入不同的 Subscriber。",
    "1.11": (
        "Publisher 可以服务多个 Subscriber，并自行决定是让它们各有一个流（单播），还是共用一个流（多播）。"
    ),
    "1.12": (
        "Publisher 必须让所有 Subscriber 按相同的顺序得到相同的元素，从仍然保留的最早的元素开始；在一段时间"
        "内，可以用不同的速率服务不同的 Subscriber。"
    ),
    "2.1": "Subscriber 必须先用 request(n) 提出请求，才会收到元素。",
    "2.2": "如果 Subscriber 的处理可能拖慢 Publisher，建议把信号交给其他线程、任务或队列。",
    "2.3": "在处理 on_complete 或 on_error 期间，Subscriber 不得回头调用自己的 Subscription 或 Publisher。",
    "2.4": "收到 on_complete 或 on_error 的 Subscriber 必须把自己的 Subscription 看作已取消。",
    "2.5": "已经有活动 Subscription 的 Subscriber 若又得到一个，必须取消新的那个。",
    "2.6": "不再需要任何元素的 Subscriber 必须取消 Subscription，而不是一忘了之。",
    "2.7": "Subscriber 对 request 和 cancel 的调用必须逐个进行。",
    "2.8": "已经取消的 Subscriber 仍必须能承受此前请求过的元素到来；cancel 并不承诺立刻清理完毕。",
    "2.9": "不论是否请求过，Subscriber 都必须随时准备好接收 on_complete。",
    "2.10": "不论是否请求过，Subscriber 都必须随时准备好接收 on_error。",
    "2.11": "Subscriber 必须保证信号完整送达之后才被处理：交给其他线程时，交接必须安全。",
    "2.12": "对同一个 Subscriber，on_subscribe 必须最多调用一次；相等的对象视为同一个。",
    "2.13": (
        "on_subscribe、on_next、on_error 和 on_complete 必须正常返回；例外是参数为 None 时必须向调用者抛出"
        "异常，在 Python 中是 TypeError。除此之外，Subscriber 表示失败的唯一途径是取消。如果它还是抛出了异"
        "常，其 Subscription 必须视为已取消，调用者则必须以适当的方式让人知道这个错误。"
    ),
    "3.1": "request 和 cancel 必须只由 Subscription 所属的 Subscriber 从内部调用。",
    "3.2": "必须可以在 on_subscribe 或 on_next 之内直接调用 request。",
    "3.3": "request 必须限制 Publisher 与 Subscriber 在同一个调用栈上相互调用的深度。",
    "3.4": "request 应当及时把控制权交还给调用者。",
    "3.5": "cancel 必须及时返回，必须可以重复调用而无害，并且必须可以从任何线程安全调用。",
    "3.6": "在已取消的 Subscription 上，request 必须什么也不做。",
    "3.7": "在已取消的 Subscription 上，再次 cancel 必须什么也不做。",
    "3.8": "只要 Subscription 没有取消，request(n) 就必须把 n 加到仍要发给其 Subscriber 的数量上。",
    "3.9": (
        "只要 Subscription 没有取消，n 小于 1 的 request(n) 就必须引出带有“非法参数”错误的 on_error，在 "
        "Python 中是 ValueError。错误信息应当说明这样的请求不被允许。"
    ),
    "3.10": (
        "只要 Subscription 没有取消，request 就可以在返回之前调用 on_next，不论是这个 Subscriber 的，还是其"
        "他 Subscriber 的。"
    ),
    "3.11": (
        "只要 Subscription 没有取消，request 就可以在返回之前调用 on_complete 或 on_error，不论是这个 "
        "Subscriber 的，还是其他 Subscriber 的。"
    ),
    "3.12": (
        "对尚未取消的 Subscription，cancel 必须使 Publisher 迟早停止向其 Subscriber 发信号；不要求立即生效。"
    ),
    "3.13": "对尚未取消的 Subscription，cancel 必须使 Publisher 迟早放开其 Subscriber，不留下任何引用。",
    "3.14": "如果取消的是最后一个 Subscription，cancel 可以使有状态的 Publisher 关闭。",
    "3.15": "调用 cancel 必须以不抛出异常的方式结束。",
    "3.16": "调用 request 必须以不抛出异常的方式结束。",
    "3.17": (
        "Subscription 必须经得起任意多次 request 调用，也必须支持高达 2^63-1 的需求量；达到这个数以后，"
        "Publisher 可以把需求当作无界。"
    ),
    "4.1": "Processor 既是 Subscriber，又是 Publisher，必须同时遵守两者的规则。",
    "4.2": (
        "Processor 可以从收到的 on_error 中恢复，这时必须把自己的 Subscription 看作已取消；如果不恢复，就必"
        "须立即把错误传给自己的各个 Subscriber。"
    ),
}
"""What each rule demands or allows, by id."""

INTENTS: Final[dict[str, str]] = {
    "1.1": (
        "需求量限定了下游每个缓冲区的大小。元素只能跟在为它腾出位置的请求之后，所以即使跨线程，投递也总是发"
        "生在请求之后。"
    ),
    "1.2": "请求只是许可，不是保证：数据源可能枯竭，可能一开始就是空的，也可能中途失败。",
    "1.3": "多个线程可以轮流发信号，只要每次交接都是安全的；这样 Subscriber 的代码就不需要加锁。",
    "1.4": "沉默与缓慢无从区分。只有明确得知失败，Subscriber 才能释放占用的资源，或者另想办法。",
    "1.5": "Subscriber 猜不到后面不会再有元素；得到通知，它才能收尾并释放资源。",
    "1.6": (
        "结束了的 Subscription 只有一种：不论是 Subscriber 主动离开，还是 Publisher 结束了流，此后适用同样"
        "的规则。"
    ),
    "1.7": "后面还能跟着别的信号，就不算结束；而 Subscriber 正是在听到结束时拆除一切的。",
    "1.8": "离开必须有效，但不必立刻生效，因为已经在途中的信号收不回来。",
    "1.9": (
        "在收到任何其他信号之前，Subscriber 已经拿到 Subscription，来得及做好准备；拒绝与其他失败走同一条路。"
        "没有 Subscriber 时，能告知的就只有调用者。"
    ),
    "1.10": (
        "谁也不能假定 Publisher 或 Subscriber 经得起与同一个对象连接两次；而且每次 subscribe 都要遵守约定，"
        "不只是第一次。"
    ),
    "1.11": "能有多少 Subscriber，元素如何在它们之间分配，都由实现来决定。",
    "1.12": (
        "大家读的是同一份日志，只是各有各的位置。来得晚或读得慢的，在日志保留的范围内看到的历史与别人相同；"
        "读得快的也不必等待。"
    ),
    "2.1": (
        "何时有余量、余量有多少，只有 Subscriber 知道。能容纳多少就请求多少，因为逐个请求会让每个元素都多一"
        "次往返；并且请把请求放在信号方法的最后，以免当场应答的 Publisher 打乱顺序。"
    ),
    "2.2": "信号方法运行在 Publisher 的线程上；处理得慢，就占用了 Publisher 以及它所服务的各方的计算时间。",
    "2.3": "此时流正在拆除；回头调用会使结束过程陷入循环和竞态。",
    "2.4": "Publisher 结束了的流，对双方都已结束；在结束了的 Subscription 上请求不会有任何结果。",
    "2.5": (
        "不能让两个 Publisher 都以为自己在供给同一个 Subscriber：两边的元素合起来会超出需求量，多余的 "
        "Subscription 也会泄漏。"
    ),
    "2.6": (
        "上游为它留着位置、缓冲区或套接字，只有 cancel 才能使其及时释放；例如，要找的那个元素已经到手的时候。"
    ),
    "2.7": "多个线程可以轮流使用一个 Subscription，前提是能确定这些调用不会重叠。",
    "2.8": "取消传到上游需要时间，途中可能与下行的元素错过。",
    "2.9": "结束不消耗需求量：空的或很短的流可以马上结束，谁也不必轮询流是否结束。",
    "2.10": "失败与需求量无关；Subscriber 不问也会得知。",
    "2.11": (
        "异步处理信号的一方要自己负责线程安全。在 Python 中，可以用队列、锁，或事件循环的 "
        "call_soon_threadsafe。"
    ),
    "2.12": "Subscriber 可以按只用一次来编写，不必考虑重新开始。",
    "2.13": (
        "有缺陷的 Subscriber 不该拖垮 Publisher。错误无法发给有缺陷的一方，所以要记入日志，或者交给负责监视"
        "的一方。"
    ),
    "3.1": (
        "一个 Subscription 连接一个 Subscriber 和一个 Publisher。何时需要元素，何时不再需要，只由这个 "
        "Subscriber 决定。"
    ),
    "3.2": "request 必须可重入：同步的 Publisher 可能在前一次调用还在栈上时，就在同一线程上用 on_next 应答。",
    "3.3": (
        "没有限制，on_next → request → on_next → … 就会以 RecursionError 告终。建议的深度是一：新的需求由正"
        "在投递的一方接手。"
    ),
    "3.4": "它运行在 Subscriber 的线程上，而且常常正处在信号处理的中途；在其中做繁重的工作会使调用者停滞。",
    "3.5": "离开应当随时、随地、不限次数地可行，也不必等待清理。",
    "3.6": "无论请求是在取消之后，还是与取消交错，都不能把流重新唤醒。",
    "3.7": "这里重申 §3.5 的要求：重复取消没有害处。",
    "3.8": "请求是累加的，而且不会在传往 Publisher 的途中丢失。",
    "3.9": "请求零个甚至更少，几乎总是 Subscriber 算错了。应当让错误显露出来，而不是让流无声地停住。",
    "3.10": "Publisher 可以是同步的，在提出请求的线程上工作。",
    "3.11": "同步的 Publisher 也可以在提出请求的线程上结束或失败。",
    "3.12": "离开的意愿会得到尊重，即使传到源头要花些时间。",
    "3.13": (
        "离开了的 Subscriber 可以被垃圾回收。不鼓励用同一个对象再次订阅（§2.12），但也不禁止，因为禁止就意"
        "味着要永远记住谁曾经离开。"
    ),
    "3.14": (
        "共享的数据源可以随最后一个 Subscriber 停止，并对后来者用 on_subscribe 接 on_complete 或 on_error "
        "来应答（§1.9）。"
    ),
    "3.15": "对另一端的故障，离开的一方无能为力。",
    "3.16": "请求无法满足，就是流失败了：它应当进入 on_error，而不是进入 Subscriber 的调用。",
    "3.17": (
        "请求可以是任意正数，次数也不限。即使每纳秒一个元素，2^63-1 个也要 292 年，所以到了这个数，谁也不必"
        "再数下去。"
    ),
    "4.1": "中间环节没有第三套规则：它的每一侧都与同类一视同仁。",
    "4.2": "中间环节能做的不只是转换，还可以重试、替换或续接。自己不处理的错误，不得扣住不发。",
}
"""Why each rule is there, by id."""

ADDENDA: Final[dict[str, str]] = {
    "3.9": "Aquifer 文档更严格：错误信息必须指出或引用本规则。Penstock 会指出规则编号。",
}
"""What one of the documents asks for beyond the others, by id."""
