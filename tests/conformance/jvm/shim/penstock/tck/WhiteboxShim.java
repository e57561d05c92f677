package penstock.tck;

import java.util.function.Function;
import org.reactivestreams.Subscriber;
import org.reactivestreams.tck.SubscriberWhiteboxVerification;
import org.reactivestreams.tck.TestEnvironment;

public class WhiteboxShim extends SubscriberWhiteboxVerification<Object> {
  private final Function<Object, Subscriber<Object>> create;

  public WhiteboxShim(TestEnvironment environment, Function<Object, Subscriber<Object>> create) {
    super(environment);
    this.create = create;
  }

  @Override public Subscriber<Object> createSubscriber(WhiteboxSubscriberProbe<Object> probe) {
    return create.apply(probe);
  }
  @Override public Object createElement(int element) { return element; }
}
