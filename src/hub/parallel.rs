//! A few jobs at a time, each on a thread of its own; the first failure ends them all.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};

use super::cancel::{Cancel, LOOK_EVERY};
use super::error::Stop;
use super::progress::Progress;

/// Jobs at a time.
const AT_A_TIME: usize = 4;
/// Steps of progress that may wait to be told.
const STEPS_WAITING: usize = 64;

/// Does `work` on all items, the first ones first. `told` hears of each step of progress with the item's number, on
/// this thread. Stopped by `cancel`, or by the first failure, which is returned.
pub(super) fn each<T: Sync>(
    items: &[T],
    work: impl Fn(&T, &mut dyn FnMut(Progress), &Cancel) -> Result<(), Stop> + Sync,
    told: &mut dyn FnMut(usize, Progress),
    cancel: &Cancel,
) -> Result<(), Stop> {
    let (next, stop) = (AtomicUsize::new(0), Cancel::new());
    let failure: Mutex<Option<Stop>> = Mutex::new(None);
    let (send, steps) = sync_channel(STEPS_WAITING);
    std::thread::scope(|scope| {
        for _ in 0..AT_A_TIME.min(items.len()) {
            let (send, next, stop, failure, work) = (send.clone(), &next, &stop, &failure, &work);
            scope.spawn(move || {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(at).filter(|_| !stop.is_cancelled()) else {
                        return;
                    };
                    // The receiver listens until all senders are gone.
                    let mut tell = |step| send.send((at, step)).unwrap_or_default();
                    if let Err(error) = work(item, &mut tell, stop) {
                        let mut first = failure.lock().unwrap_or_else(|poison| poison.into_inner());
                        if first.is_none() {
                            *first = Some(error);
                        }
                        stop.cancel();
                        return;
                    }
                }
            });
        }
        drop(send);
        loop {
            match steps.recv_timeout(LOOK_EVERY) {
                Ok((at, step)) => told(at, step),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if cancel.is_cancelled() {
                stop.cancel();
            }
        }
    });
    let failure = failure.into_inner().unwrap_or_else(|poison| poison.into_inner());
    match failure {
        Some(failure) => Err(failure),
        None if cancel.is_cancelled() => Err(Stop::Interrupted),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::error::SourceError;
    use super::*;

    #[test]
    fn every_item_is_worked_on_once_and_its_progress_told() {
        let items: Vec<u64> = (0..20).collect();
        let done = Mutex::new(Vec::new());
        let mut told = Vec::new();
        let work = |item: &u64, tell: &mut dyn FnMut(Progress), _: &Cancel| {
            let (done_now, total) = (*item, 20);
            tell(Progress::Downloading {
                done: done_now,
                total,
            });
            done.lock().unwrap().push(*item);
            Ok(())
        };
        each(&items, work, &mut |at, _| told.push(at as u64), &Cancel::new()).unwrap();
        let mut done = done.into_inner().unwrap();
        done.sort_unstable();
        told.sort_unstable();
        assert_eq!((done, told), (items.clone(), items));
    }

    #[test]
    fn the_first_failure_stops_the_others_and_is_returned() {
        let work = |item: &u32, _: &mut dyn FnMut(Progress), stop: &Cancel| {
            if *item == 1 {
                return Err(SourceError::Nowhere("one".into()).into());
            }
            // Waits for ever, but for the stop.
            while !stop.is_cancelled() {
                std::thread::yield_now();
            }
            Err(Stop::Interrupted)
        };
        let error = each(&[0, 1, 2], work, &mut |_, _| {}, &Cancel::new()).unwrap_err();
        assert!(
            matches!(error, Stop::Source(SourceError::Nowhere(_))),
            "{error:?}"
        );
    }

    #[test]
    fn a_cancel_stops_all() {
        let cancel = Cancel::new();
        let work = |_: &u32, tell: &mut dyn FnMut(Progress), stop: &Cancel| {
            tell(Progress::Waiting);
            while !stop.is_cancelled() {
                std::thread::yield_now();
            }
            Err(Stop::Interrupted)
        };
        let error = each(&[0; 9], work, &mut |_, _| cancel.cancel(), &cancel).unwrap_err();
        assert!(matches!(error, Stop::Interrupted), "{error:?}");
    }
}
