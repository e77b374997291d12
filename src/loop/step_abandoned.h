#pragma once

/// A step whose groups nobody waits for any more, because the run was told to stop. No error: who
/// runs the loop catches it, and what was trained is saved.

namespace slime::loop {

struct StepAbandoned {};

}  // namespace slime::loop
