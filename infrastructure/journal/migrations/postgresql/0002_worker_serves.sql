-- What each worker serves, as routes (domain/route.py): work that some live worker serves is not
-- left alone, whatever the others know.
ALTER TABLE worker ADD COLUMN serves text[] NOT NULL DEFAULT '{}';
