-- What each worker serves, as routes (domain/route.py): work that some live worker serves is not
-- left alone, whatever the others know. A JSON list of texts.
ALTER TABLE worker ADD COLUMN serves TEXT NOT NULL DEFAULT '[]';
