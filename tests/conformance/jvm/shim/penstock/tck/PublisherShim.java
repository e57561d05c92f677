package penstock.tck;

import java.util.function.LongFunction;
import java.util.function.Supplier;
import org.reactivestreams.Publisher;
import org.reactivestreams.tck.PublisherVerification;
import org.reactivestreams.tck.TestEnvironment;

/** The kit's classes are abstract, and Python can implement interfaces only: these shims take functions. */
public class PublisherShim extends PublisherVerification<Object> {
  private final LongFunction<Publisher<Object>> create;
  private final Supplier<Publisher<Object>> failed;
  private final long maxElements;

  public PublisherShim(TestEnvironment environment, long gcMillis, LongFunction<Publisher<Object>> create,
                       Supplier<Publisher<Object>> failed, long maxElements) {
    super(environment, gcMillis);
    this.create = create;
    this.failed = failed;
    this.maxElements = maxElements;
  }

  @Override public Publisher<Object> createPublisher(long elements) { return create.apply(elements); }
  @Override public Publisher<Object> createFailedPublisher() { return failed == null ? null : failed.get(); }
  @Override public long maxElementsFromPublisher() { return maxElements; }
}
