package penstock.tck;

import java.util.function.Consumer;
import java.util.function.Supplier;
import org.reactivestreams.Subscriber;
import org.reactivestreams.tck.SubscriberBlackboxVerification;
import org.reactivestreams.tck.TestEnvironment;

public class BlackboxShim extends SubscriberBlackboxVerification<Object> {
  private final Supplier<Subscriber<Object>> create;
  private final Consumer<Subscriber<?>> trigger;

  public BlackboxShim(TestEnvironment environment, Supplier<Subscriber<Object>> create,
                      Consumer<Subscriber<?>> trigger) {
    super(environment);
    this.create = create;
    this.trigger = trigger;
  }

  @Override public Subscriber<Object> createSubscriber() { return create.get(); }
  @Override public void triggerRequest(Subscriber<? super Object> subscriber) { trigger.accept(subscriber); }
  @Override public Object createElement(int element) { return element; }
}
