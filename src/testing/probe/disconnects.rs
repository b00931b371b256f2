//! Clients that leave before they are answered.

use super::report::{Finding, Verdict};
use super::session::{Session, found, not_applicable};
use super::wire::Lost;

pub(super) async fn check(session: &Session, findings: &mut Vec<Finding>) {
    let promise = "a client that left and comes back gets one answer, for good";
    found(findings, "disconnect", promise, leave_and_return(session, false).await);
    let promise = "so too where it left while its request ran";
    found(findings, "disconnect-during", promise, leave_and_return(session, true).await);
}

async fn leave_and_return(session: &Session, slowly: bool) -> Result<Verdict, Lost> {
    let body = if slowly { session.samples.slow.as_ref() } else { Some(&session.samples.body) };
    let Some(body) = body else { return Ok(not_applicable("no request is known that takes a while")) };
    let keys = session.key();
    for _ in 0..3 {
        session.leave(&keys, body).await?;
    }
    let first = session.succeed(&keys, body).await?;
    let again = session.settle(&keys, body).await?;
    if (first.status, &first.body) != (again.status, &again.body) {
        let seen = format!("{} and then {} {}", first.excerpt(), again.status.as_u16(), again.excerpt());
        return Ok(Verdict::Fails(seen));
    }
    Ok(Verdict::Holds)
}
