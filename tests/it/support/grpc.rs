//! A tonic service over TCP, without generated code, and a client for it.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::stream;
use http_body::Body as HttpBody;
use idempotency::IdempotencyLayer;
use idempotency::store::Store;
use tokio::task::JoinHandle;
use tonic::body::Body;
use tonic::codegen::StdError;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::server::NamedService;
use tonic::transport::server::{Router, TcpIncoming};
use tonic::transport::{Channel, Server};
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;
use tower::{Service, service_fn};

use super::bodies::{Script, Step};
use super::http::KEY;

pub type Spoken = Result<Response<Text>, Status>;
type Handler = Arc<dyn Fn(Request<Text>) -> BoxFuture<'static, Spoken> + Send + Sync>;

/// The message of all calls and answers.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Text {
    #[prost(string, tag = "1")]
    pub text: String,
}

pub fn text(text: impl Into<String>) -> Text {
    Text { text: text.into() }
}

/// `test.Calls`: `Say` is the test's, `Count` streams, `Late` says its status (`x-status`) in the trailers only.
#[derive(Clone)]
pub struct Calls(Handler);

impl Calls {
    pub fn new<F>(say: impl Fn(Request<Text>) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Spoken> + Send + 'static,
    {
        Self(Arc::new(move |request| say(request).boxed()))
    }
}

impl NamedService for Calls {
    const NAME: &'static str = "test.Calls";
}

/// A message `late`, then a status and a trailer.
fn late(headers: &http::HeaderMap) -> http::Response<Body> {
    let names = [("grpc-status", headers["x-status"].clone()), ("x-sum", "1".parse().unwrap())];
    let trailers = names.map(|(name, value)| (http::HeaderName::from_static(name), value)).into_iter().collect();
    let body = Script::new([Step::Data("\0\0\0\0\x06\n\x04late"), Step::Yield, Step::Trailers(trailers)]);
    http::Response::builder().header("content-type", "application/grpc").body(Body::new(body)).unwrap()
}

impl<B> Service<http::Request<B>> for Calls
where
    B: HttpBody + Send + 'static,
    B::Error: Into<StdError> + Send + 'static,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let say = Arc::clone(&self.0);
        async move {
            let mut grpc = tonic::server::Grpc::new(ProstCodec::<Text, Text>::default());
            Ok(match request.uri().path() {
                "/test.Calls/Say" => grpc.unary(service_fn(move |request: Request<Text>| say(request)), request).await,
                "/test.Calls/Count" => {
                    let count = service_fn(move |request: Request<Text>| {
                        let say = Arc::clone(&say);
                        async move {
                            let said = say(request).await?.into_inner();
                            Ok::<_, Status>(Response::new(stream::iter([Ok(said.clone()), Ok(said)])))
                        }
                    });
                    grpc.server_streaming(count, request).await
                }
                "/test.Calls/Late" => {
                    let response = late(request.headers());
                    let said = grpc.unary(service_fn(move |request: Request<Text>| say(request)), request).await;
                    if said.headers().contains_key("grpc-status") { said } else { response }
                }
                _ => Status::unimplemented("").into_http(),
            })
        }
        .boxed()
    }
}

/// A server on a port of its own, gone with the test, and a client for it.
pub struct Served {
    channel: Channel,
    task: JoinHandle<()>,
}

impl Served {
    /// The service under a layer that stands over the whole server.
    pub async fn under<S: Store>(layer: IdempotencyLayer<S>, calls: Calls) -> Self {
        let (address, incoming) = bind();
        let router = Server::builder().layer(layer).add_service(calls);
        Self::new(address, tokio::spawn(async move { router.serve_with_incoming(incoming).await.unwrap() }))
    }

    /// Services as they are, each with its own layers or none.
    pub async fn router(router: Router) -> Self {
        let (address, incoming) = bind();
        Self::new(address, tokio::spawn(async move { router.serve_with_incoming(incoming).await.unwrap() }))
    }

    /// A server of any layers.
    pub async fn with<F>(serve: impl FnOnce(TcpIncoming) -> F) -> Self
    where
        F: Future<Output = Result<(), tonic::transport::Error>> + Send + 'static,
    {
        let (address, incoming) = bind();
        let serving = serve(incoming);
        Self::new(address, tokio::spawn(async move { serving.await.unwrap() }))
    }

    fn new(address: SocketAddr, task: JoinHandle<()>) -> Self {
        let channel = Channel::from_shared(format!("http://{address}")).unwrap().connect_lazy();
        Self { channel, task }
    }

    async fn client(&self) -> tonic::client::Grpc<Channel> {
        let mut client = tonic::client::Grpc::new(self.channel.clone());
        client.ready().await.unwrap();
        client
    }

    pub async fn call(&self, method: &'static str, request: Request<Text>) -> Spoken {
        let path = PathAndQuery::from_static(method);
        self.client().await.unary(request, path, ProstCodec::<Text, Text>::default()).await
    }

    /// `Say` with a key.
    pub async fn say(&self, key: &'static str, what: &str) -> Spoken {
        self.call("/test.Calls/Say", keyed(key, what)).await
    }

    pub async fn count(&self, request: Request<Text>) -> Result<Response<Streaming<Text>>, Status> {
        let path = PathAndQuery::from_static("/test.Calls/Count");
        self.client().await.server_streaming(request, path, ProstCodec::<Text, Text>::default()).await
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn bind() -> (SocketAddr, TcpIncoming) {
    let incoming = TcpIncoming::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    (incoming.local_addr().unwrap(), incoming)
}

pub fn keyed(key: &'static str, what: &str) -> Request<Text> {
    let mut request = Request::new(text(what));
    request.metadata_mut().insert(KEY, key.parse().unwrap());
    request
}
