package penstock.tck;

import java.util.function.Supplier;
import org.reactivestreams.Subscriber;
import org.reactivestreams.tck.SubscriberBlackboxVerification;
import org.reactivestreams.tck.TestEnvironment;

public class BlackboxShim extends SubscriberBlackboxVerification<Object> {
  private final Supplier<Subscriber<Object>> create;

  public BlackboxShim(TestEnvironment environment, Supplier<Subscriber<Object>> create) {
    super(environment);
    this.create = create;
  }

  @Override public Subscriber<Object> createSubscriber() { return create.get(); }
  @Override public Object createElement(int element) { return element; }
}
