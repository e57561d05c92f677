"""The Processors that the kit is let loose on. Made with the buffer size that it asks for, or less."""

from penstock.streams import processor as make_processor
from penstock.streams.schedulers import background_loop, shared_pool, shared_single
from tests.conformance.jvm.publishers import Shape, failing, same, same_async
from tests.conformance.jvm.subject import Kind, Subject


def processor(shape: Shape | None = None) -> Subject:
    """A Processor with these operators inside."""
    return Subject(Kind.PROCESSOR, lambda size: make_processor(shape, capacity=size), failing)


PROCESSORS = {
    "processor": processor(),
    "processor_map": processor(lambda flux: flux.map(same)),
    "processor_map_limit_rate": processor(lambda flux: flux.map(same).limit_rate(8)),
    "processor_publish_on": processor(lambda flux: flux.publish_on(shared_pool())),
    "processor_publish_on_loop": processor(lambda flux: flux.publish_on(background_loop())),
    "processor_publish_on_single": processor(lambda flux: flux.publish_on(shared_single())),
    "processor_concat_map": processor(lambda flux: flux.concat_map(lambda element: [element])),
    "processor_flat_map": processor(lambda flux: flux.flat_map(lambda element: [element])),
    "processor_map_async": processor(lambda flux: flux.map_async(same_async)),
    "processor_share": processor(lambda flux: flux.share()),
}
