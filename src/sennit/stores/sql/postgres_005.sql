-- Writes that were made, by the id their writer gave them: whoever lost the connection asks here
-- whether a write was made. Transaction numbers cannot say it: those of a crash are given again.
CREATE TABLE sennit.receipts (
    id uuid PRIMARY KEY,
    made timestamptz NOT NULL DEFAULT now()
);
