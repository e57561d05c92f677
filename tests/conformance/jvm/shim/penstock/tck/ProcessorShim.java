package penstock.tck;

import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.function.IntFunction;
import java.util.function.Supplier;
import org.reactivestreams.Processor;
import org.reactivestreams.Publisher;
import org.reactivestreams.tck.IdentityProcessorVerification;
import org.reactivestreams.tck.TestEnvironment;

public class ProcessorShim extends IdentityProcessorVerification<Object> {
  private final IntFunction<Processor<Object, Object>> create;
  private final Supplier<Publisher<Object>> failed;
  private final long maxSubscribers;
  private final boolean coordinated;
  private ExecutorService executor;

  public ProcessorShim(TestEnvironment environment, long gcMillis, IntFunction<Processor<Object, Object>> create,
                       Supplier<Publisher<Object>> failed, long maxSubscribers, boolean coordinated) {
    super(environment, gcMillis);
    this.create = create;
    this.failed = failed;
    this.maxSubscribers = maxSubscribers;
    this.coordinated = coordinated;
  }

  // The other verifications bring their executor along, under these names.
  public void startPublisherExecutorService() { executor = Executors.newFixedThreadPool(4); }
  public void shutdownPublisherExecutorService() { executor.shutdownNow(); }
  @Override public ExecutorService publisherExecutorService() { return executor; }

  @Override public long maxSupportedSubscribers() { return maxSubscribers; }
  @Override public boolean doesCoordinatedEmission() { return coordinated; }
  @Override public Object createElement(int element) { return element; }
  @Override public Processor<Object, Object> createIdentityProcessor(int bufferSize) {
    return create.apply(bufferSize);
  }
  @Override public Publisher<Object> createFailedPublisher() { return failed == null ? null : failed.get(); }
}
