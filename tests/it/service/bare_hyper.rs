//! The example without axum (H45).

use axum::http::Method;

use crate::support::service::{Client, Service};

// H45, H28: a transaction taken by hand is the claim's: one note for three requests, none for one that failed.
#[tokio::test]
async fn the_example_on_bare_hyper_adds_a_note_once() {
    let service = Service::example("bare_hyper", &[("LISTEN", "127.0.0.1:0")]);
    let (client, url) = (Client::new(), format!("http://{}/notes", service.address));
    for replayed in [false, true, true] {
        let reply = client.send(Method::POST, &url, Some("note-1"), "buy milk").await.unwrap();
        assert_eq!((reply.status.as_u16(), &reply.body[..]), (201, &b"note 1\n"[..]));
        assert_eq!(reply.is_replay(), replayed);
    }
    assert_eq!(client.send(Method::POST, &url, Some("note-1"), "buy tea").await.unwrap().status, 422);
    for note in ["note 2\n", "note 3\n"] {
        let reply = client.send(Method::POST, &url, None, "without a key").await.unwrap();
        assert_eq!((reply.status.as_u16(), &reply.body[..]), (201, note.as_bytes()));
    }
    let list = client.send(Method::GET, &url, None, "").await.unwrap();
    assert_eq!(&list.body[..], b"1 buy milk\n2 without a key\n3 without a key\n");
}
