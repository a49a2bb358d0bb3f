"""Pure judgement: Settings, Snapshot and Memory in; Decision, Memory and Plans out."""
