//! The secret of keyed digests: HMAC-SHA-256 (RFC 2104).

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

/// What the id of a secret is made of. No transcript starts with it.
const ID: &[u8] = b"idempotency/fingerprint key\0";

/// A secret, taken in by the hash already.
#[derive(Clone)]
pub(super) struct Secret(Hmac<Sha256>);

impl Secret {
    pub(super) fn new(secret: &[u8]) -> Self {
        let mut block = hmac::digest::Key::<Hmac<Sha256>>::default();
        if secret.len() > block.len() {
            block[..32].copy_from_slice(&Sha256::digest(secret));
        } else {
            block[..secret.len()].copy_from_slice(secret);
        }
        Secret(Hmac::new(&block))
    }

    /// A hash that starts with the secret.
    pub(super) fn hash(&self) -> Hmac<Sha256> {
        self.0.clone()
    }

    /// Tells secrets apart. Whoever does not know the secret learns from it no more than from any digest.
    pub(super) fn id(&self) -> [u8; 32] {
        self.hash().chain_update(ID).finalize().into_bytes().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_hmac_sha_256() {
        // H17: RFC 4231 sections 4.2, 4.3, 4.4, 4.7 and 4.8.
        let long = [0xaa; 131];
        for (secret, data, expected) in [
            (&[0x0b; 20][..], &b"Hi There"[..], "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"),
            (b"Jefe", b"what do ya want for nothing?", "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"),
            (&[0xaa; 20], &[0xdd; 50], "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe"),
            (
                &long,
                b"Test Using Larger Than Block-Size Key - Hash Key First",
                "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54",
            ),
            (
                &long,
                b"This is a test using a larger than block-size key and a larger than block-size data. The key needs to be \
                  hashed before being used by the HMAC algorithm.",
                "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2",
            ),
        ] {
            let digest = Secret::new(secret).hash().chain_update(data).finalize().into_bytes();
            assert_eq!(digest.iter().map(|byte| format!("{byte:02x}")).collect::<String>(), expected);
        }
    }

    #[test]
    fn ids_tell_secrets_apart() {
        // H17, case F17
        assert_eq!(Secret::new(b"a").id(), Secret::new(b"a").id());
        assert_ne!(Secret::new(b"a").id(), Secret::new(b"b").id());
    }
}
