//! How often, and after which waits, a request is made again.

use std::time::Duration;

use super::cancel::Cancel;
use super::error::NetError;
use super::progress::Progress;

/// When a request that failed in a way that may pass is made again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retry {
    /// Attempts in a row without a byte gained before giving up; at least 1.
    pub attempts: u32,
    /// The wait before the second attempt; each later one is twice as long.
    pub first_wait: Duration,
    /// No wait is longer; a server that asks for a longer one ends the attempts.
    pub longest_wait: Duration,
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            attempts: 5,
            first_wait: Duration::from_millis(500),
            longest_wait: Duration::from_secs(30),
        }
    }
}

/// Even a download that gains a little with each attempt ends after this many.
const MOST_ATTEMPTS: u32 = 100;

/// Counts the attempts of one request.
pub(super) struct Attempts<'a> {
    policy: &'a Retry,
    in_a_row: u32,
    all: u32,
}

impl<'a> Attempts<'a> {
    pub fn new(policy: &'a Retry) -> Self {
        Self {
            policy,
            in_a_row: 0,
            all: 0,
        }
    }

    /// Bytes came in: the count of attempts without gain begins again.
    pub fn gained(&mut self) {
        self.in_a_row = 0;
    }

    /// After a failed attempt: waits and returns if there is another one, else gives the error back.
    pub fn failed(
        &mut self,
        error: NetError,
        progress: &mut dyn FnMut(Progress),
        cancel: &Cancel,
    ) -> Result<(), NetError> {
        self.in_a_row += 1;
        self.all += 1;
        let wait = self.wait_after(&error)?;
        let Some(wait) = wait else { return Err(error) };
        progress(Progress::Retrying {
            attempt: self.all + 1,
            after: wait,
            because: error.to_string(),
        });
        if cancel.wait(wait) {
            Ok(())
        } else {
            Err(NetError::Interrupted)
        }
    }

    /// The wait before the next attempt; none if there is no next one.
    fn wait_after(&self, error: &NetError) -> Result<Option<Duration>, NetError> {
        // A name that can't be resolved is mostly a machine without network: one more try, not many.
        let allowed = if matches!(error, NetError::NoHost(_)) {
            self.policy.attempts.min(2)
        } else {
            self.policy.attempts
        };
        if !error.is_transient() || self.in_a_row >= allowed || self.all >= MOST_ATTEMPTS {
            return Ok(None);
        }
        if let NetError::Status {
            address,
            status,
            retry_after: Some(wait),
        } = error
        {
            if *wait > self.policy.longest_wait {
                return Err(NetError::AskedToWait {
                    address: address.clone(),
                    status: *status,
                    wait: *wait,
                });
            }
            return Ok(Some(*wait));
        }
        let doubled = self
            .policy
            .first_wait
            .saturating_mul(1 << (self.in_a_row - 1).min(20));
        Ok(Some(doubled.min(self.policy.longest_wait)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(status: u16, retry_after: Option<u64>) -> NetError {
        NetError::Status {
            address: "a".into(),
            status,
            retry_after: retry_after.map(Duration::from_secs),
        }
    }

    #[test]
    fn waits_double_up_to_the_longest() {
        let policy = Retry {
            attempts: 9,
            ..Retry::default()
        };
        let waits: Vec<_> = (1..=8u32)
            .map(|in_a_row| {
                Attempts {
                    policy: &policy,
                    in_a_row,
                    all: in_a_row,
                }
                .wait_after(&status(503, None))
                .unwrap()
                .unwrap()
            })
            .map(|wait| wait.as_millis())
            .collect();
        assert_eq!(waits, [500, 1000, 2000, 4000, 8000, 16000, 30000, 30000]);
    }

    #[test]
    fn the_server_may_ask_for_a_wait_but_not_for_a_long_one() {
        let policy = Retry::default();
        let attempts = Attempts {
            policy: &policy,
            in_a_row: 1,
            all: 1,
        };
        assert_eq!(
            attempts.wait_after(&status(429, Some(3))).unwrap(),
            Some(Duration::from_secs(3))
        );
        let refused = attempts.wait_after(&status(429, Some(3600))).unwrap_err();
        assert!(refused.to_string().contains("3600 s"), "{refused}");
    }

    #[test]
    fn only_what_may_pass_is_tried_again() {
        let policy = Retry {
            attempts: 3,
            first_wait: Duration::ZERO,
            longest_wait: Duration::ZERO,
        };
        let tries = |error: fn() -> NetError| {
            let mut attempts = Attempts::new(&policy);
            let mut count = 1;
            while attempts.failed(error(), &mut |_| {}, &Cancel::new()).is_ok() {
                count += 1;
            }
            count
        };
        assert_eq!(tries(|| status(503, None)), 3);
        assert_eq!(
            tries(|| NetError::Broken {
                address: "a".into(),
                cause: "b".into()
            }),
            3
        );
        assert_eq!(tries(|| NetError::NoHost("a".into())), 2);
        for code in [400, 401, 403, 404, 410] {
            assert!(!status(code, None).is_transient(), "{code}");
        }
        assert_eq!(tries(|| status(404, None)), 1);
        assert_eq!(tries(|| NetError::Interrupted), 1);
    }

    #[test]
    fn gaining_bytes_gives_new_attempts_but_not_for_ever() {
        let policy = Retry {
            attempts: 2,
            first_wait: Duration::ZERO,
            longest_wait: Duration::ZERO,
        };
        let mut attempts = Attempts::new(&policy);
        let mut count = 0;
        loop {
            attempts.gained();
            count += 1;
            if attempts
                .failed(status(503, None), &mut |_| {}, &Cancel::new())
                .is_err()
            {
                break;
            }
        }
        assert_eq!(count, MOST_ATTEMPTS);
    }

    #[test]
    fn a_wait_ends_at_once_when_stopped() {
        let policy = Retry {
            attempts: 2,
            first_wait: Duration::from_secs(3600),
            longest_wait: Duration::from_secs(3600),
        };
        let cancel = Cancel::new();
        let stopping = cancel.clone();
        let result = Attempts::new(&policy).failed(status(503, None), &mut |_| stopping.cancel(), &cancel);
        assert!(matches!(result, Err(NetError::Interrupted)));
    }
}
