//! The client's side: layers in process, and the example as a process that is killed.

mod one_key;
mod process;
mod redirect;
#[cfg(feature = "reqwest")]
mod reqwest;
mod retry;

use bytes::Bytes;
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

type Http = Client<HttpConnector, Full<Bytes>>;

/// A client without retries, keys or redirects. hyper would send again by itself what met a closed connection.
fn http() -> Http {
    Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build_http()
}
