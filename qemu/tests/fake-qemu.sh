#!/bin/sh
# A QEMU for tests of the launcher: does what the variable FAKE_QEMU says.
# It is a file of the repository, not one that a test writes: a file that was just
# written may still be open in a sibling and cannot be executed then.
eval "$FAKE_QEMU"
