//! A guarded request without a key: it passes, with a plain transaction for whoever takes it (H2).

use std::future::poll_fn;

use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use super::body::ResponseBody;
use super::config::Config;
use super::grpc::{self, Wire};
use super::reply::{self, Reply};
use crate::policy::{Decision, Keyless, Meaning};
use crate::store::Unkeyed;

/// Runs in the request's own future: dropping it rolls back.
pub(super) async fn run<Svc, Req, R>(
    mut service: Svc,
    mut request: Request<Req>,
    unkeyed: Option<Box<dyn Unkeyed>>,
    config: &Config,
    wire: Wire,
) -> Result<Response<ResponseBody<R>>, Svc::Error>
where
    Svc: Service<Request<Req>, Response = Response<R>>,
    R: Body,
{
    poll_fn(|cx| service.poll_ready(cx)).await?;
    request.extensions_mut().insert(Keyless);
    let Some(unkeyed) = unkeyed else {
        return Ok(service.call(request).await?.map(ResponseBody::from));
    };
    unkeyed.attach(request.extensions_mut());
    let (parts, body) = service.call(request).await?.into_parts();
    // The writes are committed before the first byte of the answer.
    // Without a key there is no attempt that could have been dispatched.
    let meaning = wire.outcome(&config.policy, &parts, false).unwrap_or_else(|| grpc::presumed(&parts, false));
    let keep = matches!(meaning, Meaning::Outcome(outcome) if outcome.decision() == Decision::Commit);
    let reply = match unkeyed.finish(keep).await {
        Ok(()) => Reply::Fresh(Response::from_parts(parts, body.into())),
        Err(error) => reply::failed(&error),
    };
    Ok(reply.into_response(config, wire))
}
