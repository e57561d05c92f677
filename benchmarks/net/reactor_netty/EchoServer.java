import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import java.io.IOException;
import reactor.core.publisher.Flux;
import reactor.netty.DisposableServer;
import reactor.netty.tcp.TcpServer;

/**
 * The echo server of Reactor Netty's examples, and a source of small elements.
 *
 * <p>{@code EchoServer echo} or {@code EchoServer source}: says its port, and stays until its input ends.
 */
public final class EchoServer {

    private static final int ELEMENT = 100;

    public static void main(String[] arguments) throws IOException {
        boolean source = arguments[0].equals("source");
        TcpServer server = TcpServer.create().host("127.0.0.1").port(0);
        server = source
                ? server.handle((inbound, outbound) -> outbound.send(elements()))
                : server.handle((inbound, outbound) -> outbound.send(inbound.receive().retain()));
        DisposableServer bound = server.bindNow();
        System.out.println(bound.port());
        while (System.in.read() >= 0) {
            // Nothing is said to us; the end of the input is what we wait for.
        }
        bound.disposeNow();
    }

    private static Flux<ByteBuf> elements() {
        byte[] bytes = new byte[ELEMENT];
        for (int i = 0; i < ELEMENT; i++) {
            bytes[i] = (byte) i;
        }
        return Flux.generate(sink -> sink.next(Unpooled.wrappedBuffer(bytes)));
    }

    private EchoServer() {}
}
