//! The proxy between the services and their server.

use sqlx::mysql::MySqlConnectOptions;
use sqlx::postgres::PgConnectOptions;

use crate::Failure;
use crate::cutter::Cutter;
use crate::place::Place;
use crate::proxy::Then;
use crate::{mysql_proxy, proxy};

pub enum Gate {
    /// A file has none.
    None,
    Postgres(proxy::Proxy),
    MariaDb(mysql_proxy::Proxy),
    Redis(Cutter),
}

impl Gate {
    /// A proxy before the server at `url`, and the address for those who are to go through it.
    pub async fn before(place: Place, url: &str) -> Result<(Self, String), Failure> {
        Ok(match place {
            Place::Sqlite => (Self::None, url.to_owned()),
            Place::Postgres | Place::PostgresLease => {
                let server: PgConnectOptions = url.parse()?;
                let proxy = proxy::Proxy::start(&server).await;
                let through = proxy.options(&server).get_port();
                let url = url.replace(&format!(":{}/", server.get_port()), &format!(":{through}/"));
                (Self::Postgres(proxy), url)
            }
            Place::MariaDb => {
                let server: MySqlConnectOptions = url.parse()?;
                let proxy = mysql_proxy::Proxy::start(&server).await;
                let through = proxy.options(&server).get_port();
                let url = url.replace(&format!(":{}/", server.get_port()), &format!(":{through}/"));
                (Self::MariaDb(proxy), format!("{url}?ssl-mode=disabled"))
            }
            Place::Redis => {
                let address = url.trim_start_matches("redis://").split('/').next().unwrap_or_default();
                let cutter = Cutter::before(address.to_owned()).await;
                let url = cutter.url();
                (Self::Redis(cutter), url)
            }
        })
    }

    /// Cuts one connection once so many more messages have passed; `then` is called when it is cut.
    pub fn cut(&self, how: Then, count: u32, then: impl FnOnce() + Send + 'static) {
        let mut fuse = Fuse { left: count, then: Some(then) };
        match self {
            Self::None => {}
            Self::Postgres(proxy) => proxy.judge(move |_| if fuse.burns() { how } else { Then::Forward }),
            Self::MariaDb(proxy) => proxy.judge(move |_| if fuse.burns() { how } else { Then::Forward }),
            // It cuts the next answer, whichever that is.
            Self::Redis(cutter) => {
                cutter.arm(fuse.then.take().map(|then| -> Box<dyn FnOnce() + Send> { Box::new(then) }));
            }
        }
    }

    /// From now on everything passes.
    pub fn open(&self) {
        match self {
            Self::None => {}
            Self::Redis(cutter) => cutter.arm(None),
            Self::Postgres(proxy) => proxy.judge(|_| Then::Forward),
            Self::MariaDb(proxy) => proxy.judge(|_| Then::Forward),
        }
    }
}

struct Fuse<F> {
    left: u32,
    then: Option<F>,
}

impl<F: FnOnce()> Fuse<F> {
    /// Whether this is the message at which it is cut.
    fn burns(&mut self) -> bool {
        if self.left > 0 {
            self.left -= 1;
            return false;
        }
        match self.then.take() {
            Some(then) => {
                then();
                true
            }
            None => false,
        }
    }
}
